// Node-RED without its editor and without anything that leaves the machine.
"use strict";
module.exports = {
  flowFile: "flow.json",
  httpAdminRoot: false,
  httpNodeRoot: false,
  uiHost: "127.0.0.1",
  uiPort: Number(process.env.PORT),
  telemetry: { enabled: false, updateNotification: false },
  logging: { console: { level: "info", metrics: false, audit: false } },
};
