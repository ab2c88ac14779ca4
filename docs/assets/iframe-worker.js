/* Runs a worker in a hidden frame when the site is read from a folder (file://), where browsers
 * refuse to start workers. The search of the theme needs one. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      this.scope = frame.contentWindow
      this.ready = new Promise(resolve => {
        const script = this.scope.document.createElement("script")
        this.scope.postMessage = data => this.receive(data)
        this.scope.importScripts = (...urls) => Promise.all(urls.map(each => this.load(each)))
        script.src = url
        script.onload = resolve
        this.scope.document.body.appendChild(script)
      })
    }

    load(url) {
      return new Promise((resolve, reject) => {
        const script = this.scope.document.createElement("script")
        script.src = url
        script.onload = resolve
        script.onerror = reject
        this.scope.document.body.appendChild(script)
      })
    }

    receive(data) {
      const message = new MessageEvent("message", { data })
      this.dispatchEvent(message)
      if (this.onmessage) this.onmessage(message)
    }

    postMessage(data) {
      this.ready.then(() => this.scope.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.scope.frameElement.remove()
    }
  }
}
