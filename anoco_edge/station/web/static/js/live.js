// One WebSocket for the tab. It comes back by itself: after an error, after silence, and at once when
// the browser wakes or the network returns. Listeners hear "state", "part", "log", "job", "up", "down".

const SILENCE_MS = 12000; // the station sends its state every 5 s at least
const LONGEST_WAIT_MS = 8000;

export class Live extends EventTarget {
  #socket = null;
  #heard = 0;
  #wait = 300;
  #timer = 0;
  up = false;
  lastHeard = null;

  start() {
    this.#open();
    setInterval(() => this.#watch(), 2000);
    document.addEventListener("visibilitychange", () => document.hidden || this.#wake());
    for (const event of ["online", "pageshow", "focus"]) window.addEventListener(event, () => this.#wake());
    window.addEventListener("offline", () => this.#lost());
    return this;
  }

  #open() {
    clearTimeout(this.#timer);
    const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/api/v1/live`);
    this.#socket = socket;
    this.#heard = performance.now();
    socket.addEventListener("message", (event) => this.#take(socket, event.data));
    socket.addEventListener("close", (event) => {
      if (socket !== this.#socket) return;
      if (event.code === 4401) location.assign(`/login?next=${encodeURIComponent(location.pathname)}`);
      this.#lost();
    });
  }

  #take(socket, data) {
    if (socket !== this.#socket) return;
    const message = JSON.parse(data);
    this.#heard = performance.now();
    this.lastHeard = new Date();
    if (!this.up) {
      this.up = true;
      this.#wait = 300;
      this.dispatchEvent(new Event("up"));
    }
    this.dispatchEvent(new CustomEvent(message.type, { detail: message }));
  }

  // A socket whose network went away stays "open" for minutes, so silence counts as an end.
  #watch() {
    if (performance.now() - this.#heard > SILENCE_MS) this.#lost();
  }

  #wake() {
    const quiet = performance.now() - this.#heard > 6000;
    const connecting = this.#socket?.readyState === WebSocket.CONNECTING;
    if (quiet || (!this.up && !connecting)) {
      this.#wait = 300;
      this.#lost(0);
    }
  }

  #lost(wait = this.#wait) {
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
    if (this.up) {
      this.up = false;
      this.dispatchEvent(new Event("down"));
    }
    this.#heard = performance.now();
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#open(), wait * (0.7 + 0.6 * Math.random()));
    this.#wait = Math.min(this.#wait * 2, LONGEST_WAIT_MS);
  }
}

export const live = new Live();
