// Logging in: a name with a password, or with a PIN in a browser that was enrolled.

import { get, send } from "../api.js";
import { destination, door } from "../door.js";
import { all, byId, say } from "../dom.js";
import { tried } from "../shell.js";
import { t } from "../text.js";

const secret = document.querySelector("input[name=secret]");
let kind = "password";

function choose(wanted) {
  kind = wanted;
  for (const each of all("[data-kind]")) each.setAttribute("aria-pressed", String(each.dataset.kind === kind));
  say(byId("secret-label"), t(`login.${kind}`));
  secret.inputMode = kind === "pin" ? "numeric" : "text";
  secret.autocomplete = kind === "pin" ? "off" : "current-password";
}

door(byId("login"), async (values) => {
  await send("POST", "/api/v1/session", { name: values.name, [kind]: values.secret });
  location.assign(destination());
});
for (const each of all("[data-kind]")) each.addEventListener("click", () => choose(each.dataset.kind));
tried(async () => {
  const { pin_allowed: allowed } = await get("/api/v1/session");
  byId("kinds").hidden = !allowed;
  if (allowed) choose("pin");
});
