// A PLC that scans every 10 ms over Modbus TCP, with a reject rule of its own.
//   node plc.js PORT PARTS    prints one line of JSON for each part
// The addresses and bits are those of docs/reference/line-words.md, written down here by hand.
"use strict";
const ModbusRTU = require("modbus-serial");

const SCAN_MS = 10, ALIVE_MS = 5000;
const ENABLE = 1, TRIGGER = 2, RESULT_ACK = 4;
const READY = 1, TRIGGER_ACK = 2, RESULT_VALID = 32, PASS = 64, FAIL = 128, SIMULATED = 32768;
const STATUS = 0, HEARTBEAT = 1, RESULT_SEQ = 2, TOTAL_MS = 9, PART_CODE_ECHO = 24;

const [port, parts] = process.argv.slice(2).map(Number);
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const plc = new ModbusRTU();

async function main() {
  await plc.connectTCP("127.0.0.1", { port });
  plc.setTimeout(60000);
  let seq = 0, command = ENABLE, step = "ready", lastBeat = -1, beatAt = 0, scans = 0;
  while (seq < parts || step !== "ready") {
    const words = (await plc.readInputRegisters(0, 64)).data;
    const has = (bit) => (words[STATUS] & bit) !== 0;
    scans += 1;
    if (words[HEARTBEAT] !== lastBeat) {
      lastBeat = words[HEARTBEAT];
      beatAt = Date.now();
    }
    if (step === "ready" && has(READY) && !has(RESULT_VALID)) {
      seq += 1;
      command = ENABLE | TRIGGER;
      step = "triggered";
    } else if (step === "triggered" && has(TRIGGER_ACK)) {
      command = ENABLE;
      step = "waiting";
    } else if (step === "waiting" && has(RESULT_VALID) && words[RESULT_SEQ] === seq) {
      const release = has(PASS) && !has(FAIL) && !has(SIMULATED) && Date.now() - beatAt < ALIVE_MS;
      const code = Buffer.alloc(16);
      words.slice(PART_CODE_ECHO, PART_CODE_ECHO + 8).forEach((w, i) => code.writeUInt16BE(w, 2 * i));
      const part = code.toString("ascii").replace(/\0+$/, "");
      console.log(JSON.stringify({ seq, release, part, total_ms: words[TOTAL_MS], scans }));
      command = ENABLE | RESULT_ACK;
      step = "taken";
    } else if (step === "taken" && !has(RESULT_VALID)) {
      command = ENABLE;
      step = "ready";
    }
    const code = Buffer.alloc(16);
    code.write(`P${seq}`, "ascii");
    const text = Array.from({ length: 8 }, (_, i) => code.readUInt16BE(2 * i));
    await plc.writeRegisters(0, [command, seq, 0, scans & 0xffff, 0, 0, 0, 0, ...text]);
    await pause(SCAN_MS);
  }
  plc.close(() => process.exit(0));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
