// Drives a VisionSystem of OPC 40100-1 with node-opcua, encrypted and with a user.
//   node client.js PORT USER PASSWORD PARTS
// prints one line of JSON for each result, one with the recipe and a result that it asks for again, after
// a line of standard input, by which the judge stands still, one with a part that it aborts, and at its
// end one with all transitions between states that it heard of.
"use strict";
const path = require("path");
const {
  AttributeIds, BrowseDirection, ClientSubscription, ClientMonitoredItem, DataType, MessageSecurityMode,
  OPCUAClient, SecurityPolicy, TimestampsToReturn, UserTokenType, Variant, VariantArrayType,
  constructEventFilter, makeBrowsePath, ofType, resolveNodeId,
} = require("node-opcua-client");
const { OPCUACertificateManager } = require("node-opcua-certificate-manager");

const [port, userName, password, parts] = process.argv.slice(2);
const VISION = "http://opcfoundation.org/UA/MachineVision";
const OURS = "urn:anoco-edge:line";
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

async function main() {
  const clientCertificateManager = new OPCUACertificateManager({
    rootFolder: path.join(__dirname, "pki"),
    automaticallyAcceptUnknownCertificate: true,
  });
  const client = OPCUAClient.create({
    applicationName: "client",
    clientCertificateManager,
    securityMode: MessageSecurityMode.SignAndEncrypt,
    securityPolicy: SecurityPolicy.Basic256Sha256,
    endpointMustExist: false,
    connectionStrategy: { maxRetry: 2 },
  });
  await client.connect(`opc.tcp://127.0.0.1:${port}/`);
  const session = await client.createSession({ type: UserTokenType.UserName, userName, password });
  const spaces = await session.readNamespaceArray();
  const vision = spaces.indexOf(VISION), ours = spaces.indexOf(OURS);
  const system = `ns=${ours};s=press-3`;
  const find = async (names) => {
    const steps = names.map((name) => `/${vision}:${name}`).join("");
    const found = await session.translateBrowsePath(makeBrowsePath(system, steps));
    if (!found.targets || !found.targets.length) throw new Error(`there is no ${names.join("/")}`);
    return found.targets[0].targetId;
  };
  const word = async (name) =>
    (await session.read({ nodeId: `ns=${ours};s=press-3/Words/${name}`, attributeId: AttributeIds.Value })).value.value;
  const structure = async (name, fields) => {
    const kind = await findType(session, vision, name);
    return new Variant({ dataType: DataType.ExtensionObject, value: await session.constructExtensionObject(kind, fields) });
  };

  const events = [];
  const subscription = ClientSubscription.create(session, {
    requestedPublishingInterval: 20, requestedLifetimeCount: 1000, requestedMaxKeepAliveCount: 10, publishingEnabled: true,
  });
  const listen = async (names, filter, heard) => {
    const item = ClientMonitoredItem.create(
      subscription,
      { nodeId: await find(names), attributeId: AttributeIds.EventNotifier },
      { samplingInterval: 0, discardOldest: true, queueSize: 100, filter },
      TimestampsToReturn.Both
    );
    item.on("changed", heard);
    await new Promise((done) => item.once("initialized", done));
  };
  const resultFields = ["Message", `${vision}:ResultId`, `${vision}:ResultContent`];
  await listen(["ResultManagement"], constructEventFilter(resultFields), (fields) => events.push(fields));
  const transitions = [];
  const changed = await findType(session, vision, "StateChangedEventType", "BaseEventType");
  await listen(
    ["VisionStateMachine"],
    constructEventFilter(["Transition", "FromState", "ToState", "Transition.Id"], ofType(changed)),
    (fields) => transitions.push(fields.map((field) => field.value))
  );

  const machine = await find(["VisionStateMachine"]);
  const automatic = await find(["VisionStateMachine", "AutomaticModeStateMachine"]);
  const select = await find(["VisionStateMachine", "SelectModeAutomatic"]);
  const start = await find(["VisionStateMachine", "AutomaticModeStateMachine", "StartSingleJob"]);
  const enabled = await session.call({ objectId: machine, methodId: select, inputArguments: [] });
  if (enabled.outputArguments[0].value !== 0) throw new Error(enabled.toString());

  const trigger = async (part) => {
    while (((await word("STATUS")) & 1) === 0) await pause(20);
    const answer = await session.call({
      objectId: automatic,
      methodId: start,
      inputArguments: [
        await structure("MeasIdDataType", { id: "" }),
        await structure("PartIdDataType", { id: part }),
        await structure("RecipeIdExternalDataType", { id: "" }),
        await structure("ProductIdDataType", { id: "" }),
        new Variant({ dataType: DataType.Variant, arrayType: VariantArrayType.Array, value: [] }),
      ],
    });
    if (!answer.outputArguments || answer.outputArguments[1].value !== 0) throw new Error(answer.toString());
    return answer.outputArguments[0].value.id;
  };
  const nextResult = async (before) => {
    while (events.length === before) await pause(10);
    return events[before];
  };

  let job = "";
  for (let part = 1; part <= Number(parts); part += 1) {
    const before = events.length;
    job = await trigger(`P${part}`);
    const [message, result, content] = await nextResult(before);
    console.log(JSON.stringify({
      job,
      result: result.value.id,
      verdict: content.value[0],
      message: message.value.text,
      seq: await word("RESULT_SEQ"),
      part: await word("PART_CODE_ECHO"),
    }));
  }

  const external = await session.read({
    nodeId: (await session.translateBrowsePath(makeBrowsePath(`ns=${ours};s=press-3/Recipes/washer`, `/${vision}:ExternalId`))).targets[0].targetId,
    attributeId: AttributeIds.Value,
  });
  const recipe = external.value.value;
  const again = await session.call({
    objectId: await find(["ResultManagement"]),
    methodId: await find(["ResultManagement", "GetResultById"]),
    inputArguments: [await structure("ResultIdDataType", { id: job }), new Variant({ dataType: DataType.Int32, value: 0 })],
  });
  console.log(JSON.stringify({
    recipe: { name: recipe.id, generation: recipe.version, hash: recipe.hash.toString("hex") },
    again: again.outputArguments[1].value.resultId.id,
    checksum: await word("SETTINGS_CHECKSUM"),
  }));

  const abort = async () => (await session.call({
    objectId: automatic,
    methodId: await find(["VisionStateMachine", "AutomaticModeStateMachine", "Abort"]),
    inputArguments: [new Variant({ dataType: DataType.Int32, value: 0 }), new Variant({ dataType: DataType.String, value: "" })],
  })).outputArguments[0].value;
  const idle = await abort();
  await new Promise((done) => process.stdin.once("data", done));
  const before = events.length;
  job = await trigger("P0");
  const error = await abort();
  const [, result, content] = await nextResult(before);
  console.log(JSON.stringify({ idle, error, aborted: result.value.id === job, content: content.value }));
  while (!transitions.some(([name]) => name.text.endsWith("Abort"))) await pause(10);
  const names = [];
  for (const [name, from, to, id] of transitions) {
    const node = (await session.read({ nodeId: id, attributeId: AttributeIds.BrowseName })).value.value;
    if (node.name !== name.text) throw new Error(`${name.text} has the node ${node.name}`);
    names.push([from.text, to.text, name.text]);
  }
  console.log(JSON.stringify({ transitions: names }));
  await session.close();
  await client.disconnect();
  process.exit(0);
}

async function findType(session, vision, name, base = "Structure") {
  const open = [resolveNodeId(base)];
  while (open.length) {
    const found = await session.browse({
      nodeId: open.shift(), referenceTypeId: "HasSubtype", browseDirection: BrowseDirection.Forward, resultMask: 63,
    });
    for (const reference of found.references || []) {
      if (reference.browseName.name === name && reference.browseName.namespaceIndex === vision) return reference.nodeId;
      open.push(reference.nodeId);
    }
  }
  throw new Error(`there is no type ${name}`);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
