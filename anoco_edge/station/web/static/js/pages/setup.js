// The first user: the one-time code from the console, a name and a password.

import { send } from "../api.js";
import { door } from "../door.js";
import { byId } from "../dom.js";
import { t } from "../text.js";

door(byId("setup"), async ({ code, name, password, again }) => {
  if (password !== again) throw new Error(t("setup.differ"));
  await send("POST", "/api/v1/setup", { code, name, password });
  location.assign("/");
});
