// What the pages for logging in and for the first set-up share.

import { all, byId, say } from "./dom.js";
import { startPage } from "./shell.js";

/** Return where to go after logging in: an address of this station and nothing else. */
export function destination() {
  const wanted = new URLSearchParams(location.search).get("next") ?? "/";
  const address = new URL(wanted, location.origin);
  // The whole address: a path alone may begin with "//" ("/.//host" becomes "//host") and lead elsewhere.
  return address.origin === location.origin ? address.href : "/";
}

/** Send a form by `action(values)` and say in place what was wrong. */
export function door(form, action) {
  startPage();
  const wrong = byId("wrong");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const submit = form.querySelector("[type=submit]");
    submit.disabled = true;
    wrong.hidden = true;
    try {
      await action(Object.fromEntries(new FormData(form)));
    } catch (error) {
      wrong.hidden = false;
      say(wrong, error.message);
      for (const each of all("input[type=password]", form)) each.value = "";
    } finally {
      submit.disabled = false;
    }
  });
}
