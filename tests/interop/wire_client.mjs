// A Kinetic client in plain Node, written from the description of the protocol alone: it knows nothing of our code, of
// kinetic.proto or of other clients. It makes one call after the other and prints a line of JSON for each answer, with
// every field that the message has, so that the answers of two devices can be compared (compare_answers.py).
//
//   node wire_client.mjs PORT TLS-PORT PEER-PORT

import crypto from 'node:crypto';
import net from 'node:net';
import tls from 'node:tls';

const [port, tlsPort, peerPort] = process.argv.slice(2).map(Number);

// --- Messages: field number to [name, type]; a table is a message, "*" repeats.

const status = {1: ['code', 'int'], 2: ['statusMessage', 'text'], 3: ['detailedMessage', 'bytes']};
const header = {
  1: ['clusterVersion', 'int'], 3: ['connectionID', 'int'], 4: ['sequence', 'int'], 6: ['ackSequence', 'int'],
  7: ['messageType', 'int'], 9: ['timeout', 'int'], 10: ['earlyExit', 'int'], 12: ['priority', 'int'],
  13: ['TimeQuanta', 'int'], 14: ['batchID', 'int'],
};
const keyValue = {
  2: ['newVersion', 'bytes'], 3: ['key', 'bytes'], 4: ['dbVersion', 'bytes'], 5: ['tag', 'bytes'], 6: ['algorithm', 'int'],
  7: ['metadataOnly', 'int'], 8: ['force', 'int'], 9: ['synchronization', 'int'],
};
const range = {
  1: ['startKey', 'bytes'], 2: ['endKey', 'bytes'], 3: ['startKeyInclusive', 'int'], 4: ['endKeyInclusive', 'int'],
  5: ['maxReturned', 'int'], 6: ['reverse', 'int'], 8: ['keys', 'bytes*'],
};
const setup = {1: ['newClusterVersion', 'int'], 5: ['firmwareDownload', 'int'], 6: ['setupOpType', 'int']};
const peer = {1: ['hostname', 'text'], 2: ['port', 'int'], 3: ['tls', 'int']};
const p2pOperation = {1: ['peer', peer], 3: ['allChildOperationsSucceeded', 'int']};
p2pOperation[2] = ['operation', {
  3: ['key', 'bytes'], 4: ['version', 'bytes'], 5: ['newKey', 'bytes'], 6: ['force', 'int'], 7: ['status', status],
  8: ['p2pop', p2pOperation],
}, '*'];
const getLog = {
  1: ['types', 'int*'],
  2: ['utilizations', {1: ['name', 'text'], 2: ['value', 'float']}, '*'],
  3: ['temperatures', {
    1: ['name', 'text'], 2: ['current', 'float'], 3: ['minimum', 'float'], 4: ['maximum', 'float'], 5: ['target', 'float'],
  }, '*'],
  4: ['capacity', {4: ['nominalCapacityInBytes', 'int'], 5: ['portionFull', 'float']}],
  5: ['configuration', {
    5: ['vendor', 'text'], 6: ['model', 'text'], 7: ['serialNumber', 'bytes'], 8: ['version', 'text'],
    9: ['interface', {1: ['name', 'text'], 2: ['MAC', 'bytes'], 3: ['ipv4Address', 'bytes'], 4: ['ipv6Address', 'bytes']}, '*'],
    10: ['port', 'int'], 11: ['tlsPort', 'int'], 12: ['compilationDate', 'text'], 13: ['sourceHash', 'text'],
    14: ['worldWideName', 'bytes'], 15: ['protocolVersion', 'text'], 16: ['protocolCompilationDate', 'text'],
    17: ['protocolSourceHash', 'text'], 18: ['currentPowerLevel', 'int'],
  }],
  6: ['statistics', {1: ['messageType', 'int'], 4: ['count', 'int'], 5: ['bytes', 'int'], 6: ['maxLatency', 'int']}, '*'],
  7: ['messages', 'bytes'],
  8: ['limits', Object.fromEntries([
    'maxKeySize', 'maxValueSize', 'maxVersionSize', 'maxTagSize', 'maxConnections', 'maxOutstandingReadRequests',
    'maxOutstandingWriteRequests', 'maxMessageSize', 'maxKeyRangeCount', 'maxIdentityCount', 'maxPinSize',
    'maxOperationCountPerBatch', 'maxBatchCountPerDevice', 'maxBatchSize', 'maxDeletesPerBatch',
  ].map((name, index) => [index + 1, [name, 'int']]))],
  9: ['device', {1: ['name', 'bytes']}],
};
const security = {
  2: ['acl', {
    1: ['identity', 'int'], 2: ['key', 'bytes'], 3: ['hmacAlgorithm', 'int'],
    4: ['scope', {1: ['offset', 'int'], 2: ['value', 'bytes'], 3: ['permission', 'int*'], 4: ['TlsRequired', 'int']}, '*'],
    5: ['maxPriority', 'int'],
  }, '*'],
  3: ['oldLockPIN', 'bytes'], 4: ['newLockPIN', 'bytes'], 5: ['oldErasePIN', 'bytes'], 6: ['newErasePIN', 'bytes'],
};
const body = {
  1: ['keyValue', keyValue], 2: ['range', range], 3: ['setup', setup], 4: ['p2pOperation', p2pOperation],
  6: ['getLog', getLog], 7: ['security', security], 8: ['pinOp', {1: ['pinOpType', 'int']}],
  9: ['batch', {1: ['count', 'int'], 2: ['sequence', 'packed'], 3: ['failedSequence', 'int']}],
};
const command = {1: ['header', header], 2: ['body', body], 3: ['status', status]};
const message = {
  4: ['authType', 'int'], 5: ['hmacAuth', {1: ['identity', 'int'], 2: ['hmac', 'raw']}],
  6: ['pinAuth', {1: ['pin', 'bytes']}], 7: ['commandBytes', 'raw'],
};
const types = Object.fromEntries(Object.entries({
  GET: 2, PUT: 4, DELETE: 6, GETNEXT: 8, GETPREVIOUS: 10, GETKEYRANGE: 12, GETVERSION: 16, SETUP: 22, GETLOG: 24, SECURITY: 26,
  PEER2PEERPUSH: 28, NOOP: 30, FLUSHALLDATA: 32, PINOP: 36, MEDIASCAN: 38, MEDIAOPTIMIZE: 40, START_BATCH: 42, END_BATCH: 44,
  ABORT_BATCH: 46,
}));

function varint(number) {
  const bytes = [];
  for (let left = BigInt.asUintN(64, BigInt(number)); ; left >>= 7n) {
    if (left < 128n) return Buffer.from([...bytes, Number(left)]);
    bytes.push(Number(left & 127n) | 128);
  }
}

function encode(schema, fields) {
  const parts = [];
  for (const [number, [name, type]] of Object.entries(schema)) {
    if (fields[name] === undefined) continue;
    for (const value of Array.isArray(fields[name]) ? fields[name] : [fields[name]]) {
      if (type === 'int' || type === 'int*') {
        parts.push(varint(Number(number) << 3), varint(value));
      } else {
        const bytes = typeof type === 'object' ? encode(type, value) : Buffer.from(value);
        parts.push(varint((Number(number) << 3) | 2), varint(bytes.length), bytes);
      }
    }
  }
  return Buffer.concat(parts);
}

function decode(schema, bytes) {
  let at = 0;
  const read = () => {
    let number = 0n;
    for (let shift = 0n; ; shift += 7n) {
      number |= BigInt(bytes[at] & 127) << shift;
      if (bytes[at++] < 128) return number;
    }
  };
  const integer = number => {
    const signed = BigInt.asIntN(64, number);
    return Number.isSafeInteger(Number(signed)) ? Number(signed) : signed.toString();
  };
  const fields = {};
  while (at < bytes.length) {
    const key = Number(read());
    const [name, type, repeated] = schema[key >> 3] ?? [`field ${key >> 3}`, 'bytes'];
    let value;
    if ((key & 7) === 0) {
      value = integer(read());
    } else if ((key & 7) === 5) {
      value = bytes.readFloatLE(at);
      at += 4;
    } else if ((key & 7) === 1) {
      value = bytes.subarray(at, at += 8).toString('hex');
    } else {
      const length = Number(read());
      const part = bytes.subarray(at, at += length);
      if (typeof type === 'object') {
        value = decode(type, part);
      } else if (type === 'packed') {
        value = [];
        const end = at;
        for (at = end - length; at < end;) value.push(integer(read()));
      } else if (type === 'raw') {
        value = part;
      } else {
        value = printable(part);
      }
    }
    if (repeated || String(type).endsWith('*')) (fields[name] ??= []).push(value);
    else fields[name] = value;
  }
  return fields;
}

function printable(bytes) {
  const text = bytes.toString('latin1');
  if (text.length > 200) return `${text.length} bytes, SHA-1 ${crypto.createHash('sha1').update(bytes).digest('hex')}`;
  return /^[\x20-\x7e]*$/.test(text) ? text : `0x${bytes.toString('hex')}`;
}

// --- A connection

function sign(key, bytes) {
  const length = Buffer.alloc(4);
  length.writeUInt32BE(bytes.length);
  return crypto.createHmac('sha1', key).update(length).update(bytes).digest();
}

class Connection {
  constructor(secure) {
    const options = {host: '127.0.0.1', port: secure ? tlsPort : port, rejectUnauthorized: false, maxVersion: 'TLSv1.2'};
    this.socket = secure ? tls.connect(options) : net.connect(options);
    this.received = Buffer.alloc(0);
    this.sequence = 0;
    this.awaited = null;
    this.socket.on('data', data => {
      this.received = Buffer.concat([this.received, data]);
      this.awaited?.();
    });
    this.socket.on('close', () => {
      this.closed = true;
      this.awaited?.();
    });
    this.socket.on('error', () => {});
  }

  // The next message; null when the device has hung up or says nothing for 10 s.
  async receive() {
    const end = Date.now() + 10000;
    for (;;) {
      const have = this.received;
      const size = have.length < 9 ? Infinity : 9 + have.readUInt32BE(1) + have.readUInt32BE(5);
      if (have.length >= size) {
        const value = have.subarray(9 + have.readUInt32BE(1), size);
        const got = decode(message, have.subarray(9, 9 + have.readUInt32BE(1)));
        this.received = have.subarray(size);
        const bytes = got.commandBytes ?? Buffer.alloc(0);
        const answer = {authType: got.authType, ...decode(command, bytes)};
        if (value.length > 0) answer.value = printable(value);
        if (got.hmacAuth) {
          answer.identity = got.hmacAuth.identity;
          answer.signature = sign(this.key, bytes).equals(got.hmacAuth.hmac ?? Buffer.alloc(0)) ? 'right' : 'wrong';
        }
        return answer;
      }
      if (this.closed || Date.now() >= end) return null;
      await new Promise(resolve => {
        this.awaited = resolve;
        setTimeout(resolve, 200);
      });
    }
  }

  async greet() {
    const greeting = await this.receive();
    this.id = greeting.header.connectionID;
    return greeting;
  }

  // A request; `more` changes what is usual about it.
  send(type, fields = {}, value = '', more = {}) {
    const bytes = encode(command, {
      header: {
        clusterVersion: 0, connectionID: this.id, sequence: ++this.sequence, messageType: types[type],
        ...more.header,
      },
      body: fields,
    });
    this.key = more.key ?? 'asdfasdf';
    const envelope = more.pin === undefined
      ? {authType: 1, hmacAuth: {identity: more.identity ?? 1, hmac: more.hmac ?? sign(this.key, bytes)}}
      : {authType: 2, pinAuth: {pin: more.pin}};
    const whole = encode(message, {...envelope, commandBytes: bytes});
    const front = Buffer.alloc(9);
    front.write('F');
    front.writeUInt32BE(whole.length, 1);
    front.writeUInt32BE(value.length, 5);
    this.socket.write(Buffer.concat([front, whole, Buffer.from(value)]));
  }

  async ask(...request) {
    this.send(...request);
    return this.receive();
  }
}

// --- The calls

// In what is printed the numbers that a device may choose as it likes are left out, and said to be as they must.
function print(call, connection, answer) {
  if (answer === null) {
    console.log(JSON.stringify({call, answer: {connection: connection.closed ? 'closed' : 'silent'}}));
    return;
  }
  const {connectionID, ackSequence} = answer.header ?? {};
  if (connectionID !== undefined) {
    const own = connectionID === connection.id && connectionID !== 0;
    answer.header.connectionID = own ? 'that of the connection' : connectionID;
  }
  if (ackSequence !== undefined && ackSequence === connection.sequence) answer.header.ackSequence = 'that of the request';
  const batch = answer.body?.batch;
  for (const name of ['sequence', 'failedSequence']) {
    if (batch?.[name] === undefined) continue;
    batch[name] = [batch[name]].flat().map(number => `the end's less ${connection.sequence - number}`);
  }
  console.log(JSON.stringify({call, answer}));
}

const sha1 = text => crypto.createHash('sha1').update(text).digest();
const entry = (key, text, more = {}) => ({
  keyValue: {key, tag: sha1(text), algorithm: 1, synchronization: 1, ...more},
});
const between = (startKey, endKey, more = {}) => ({
  range: {startKey, endKey, startKeyInclusive: 1, endKeyInclusive: 1, maxReturned: 200, ...more},
});

const plain = new Connection(false);
const call = async (name, ...request) => print(name, plain, await plain.ask(...request));
print('greeting', plain, await plain.greet());

await call('noop', 'NOOP');
await call('put', 'PUT', entry('k1', 'one', {newVersion: 'v1'}), 'one');
await call('put: there is one', 'PUT', entry('k1', 'two', {newVersion: 'v2'}), 'two');
await call('put: another version', 'PUT', entry('k1', 'two', {newVersion: 'v2', dbVersion: 'v0'}), 'two');
await call('put: the right version', 'PUT', entry('k1', 'two', {newVersion: 'v2', dbVersion: 'v1'}), 'two');
await call('put: forced', 'PUT', entry('k1', 'three', {newVersion: 'v3', dbVersion: 'v0', force: 1}), 'three');
await call('put: nothing there, version given', 'PUT', entry('none', 'one', {dbVersion: 'v1'}), 'one');
await call('put: written back', 'PUT', entry('k2', '', {synchronization: 2, tag: '', newVersion: 'v'}));
await call('put: flushed', 'PUT', entry('k3', 'x', {synchronization: 3}), 'x');
await call('put: no synchronization', 'PUT', {keyValue: {key: 'k4', tag: 't'}}, 'x');
await call('put: unknown synchronization', 'PUT', entry('k5', 'x', {synchronization: -1}), 'x');
await call('put: a tag that does not fit', 'PUT', entry('k6', 'y'), 'x');
await call('put: without algorithm', 'PUT', {keyValue: {key: 'k7', tag: 'l337', synchronization: 1}}, 'x');
await call('put: the largest value', 'PUT', entry('large', 'L'.repeat(1 << 20)), 'L'.repeat(1 << 20));
await call('put: a larger value', 'PUT', entry('larger', 'x'), 'L'.repeat((1 << 20) + 1));
await call('put: the longest key', 'PUT', entry('K'.repeat(4096), 'x'), 'x');
await call('put: a longer key', 'PUT', entry('K'.repeat(4097), 'x'), 'x');
await call('put: the longest version', 'PUT', entry('V', 'x', {newVersion: 'V'.repeat(2048)}), 'x');
await call('put: a longer version', 'PUT', entry('VV', 'x', {newVersion: 'V'.repeat(2049)}), 'x');

await call('get', 'GET', {keyValue: {key: 'k1'}});
await call('get: none', 'GET', {keyValue: {key: 'none'}});
await call('get: an empty value', 'GET', {keyValue: {key: 'k2'}});
await call('get: without algorithm', 'GET', {keyValue: {key: 'k7'}});
await call('get: the largest value', 'GET', {keyValue: {key: 'large'}});
await call('get: metadata', 'GET', {keyValue: {key: 'k1', metadataOnly: 1}});
await call('get: metadata of none', 'GET', {keyValue: {key: 'none', metadataOnly: 1}});
await call('getversion', 'GETVERSION', {keyValue: {key: 'k1'}});
await call('getversion: none', 'GETVERSION', {keyValue: {key: 'none'}});
await call('getnext', 'GETNEXT', {keyValue: {key: 'k1'}});
await call('getnext: of none', 'GETNEXT', {keyValue: {key: 'k11'}});
await call('getnext: the end', 'GETNEXT', {keyValue: {key: 'z'}});
await call('getprevious', 'GETPREVIOUS', {keyValue: {key: 'k3'}});
await call('getprevious: the end', 'GETPREVIOUS', {keyValue: {key: 'A'}});
await call('getkeyrange', 'GETKEYRANGE', between('k1', 'k3'));
await call('getkeyrange: without ends', 'GETKEYRANGE', between('k1', 'k3', {startKeyInclusive: 0, endKeyInclusive: 0}));
await call('getkeyrange: backwards', 'GETKEYRANGE', between('k1', 'k7', {reverse: 1, maxReturned: 2}));
await call('getkeyrange: no keys', 'GETKEYRANGE', between('x', 'z'));
await call('getkeyrange: the wrong way round', 'GETKEYRANGE', between('k3', 'k1'));
await call('getkeyrange: too many', 'GETKEYRANGE', between('k1', 'k3', {maxReturned: 201}));
await call('getkeyrange: of none', 'GETKEYRANGE', between('k1', 'k3', {maxReturned: 0}));

await call('delete: another version', 'DELETE', {keyValue: {key: 'k1', dbVersion: 'v0', synchronization: 1}});
await call('delete', 'DELETE', {keyValue: {key: 'k1', dbVersion: 'v3', synchronization: 1}});
await call('delete: none', 'DELETE', {keyValue: {key: 'k1', dbVersion: 'v3', synchronization: 1}});
await call('delete: none, forced', 'DELETE', {keyValue: {key: 'k1', force: 1, synchronization: 2}});
await call('flush', 'FLUSHALLDATA');

const inBatch = {header: {batchID: 7}};
await call('batch: start', 'START_BATCH', {}, '', inBatch);
plain.send('PUT', entry('b1', 'one', {newVersion: 'v1'}), 'one', inBatch);
plain.send('DELETE', {keyValue: {key: 'k3', force: 1, synchronization: 1}}, '', inBatch);
await call('batch: end', 'END_BATCH', {batch: {count: 2}}, '', inBatch);
await call('batch: what was put', 'GET', {keyValue: {key: 'b1'}});
await call('batch: what was deleted', 'GET', {keyValue: {key: 'k3'}});
await call('batch: start another', 'START_BATCH', {}, '', inBatch);
plain.send('PUT', entry('b2', 'one'), 'one', inBatch);
plain.send('PUT', entry('b1', 'two', {dbVersion: 'v0'}), 'two', inBatch);
await call('batch: end with a wrong version', 'END_BATCH', {batch: {count: 2}}, '', inBatch);
await call('batch: what was not put', 'GET', {keyValue: {key: 'b2'}});
await call('batch: start a third', 'START_BATCH', {}, '', inBatch);
plain.send('PUT', entry('b3', 'one'), 'one', inBatch);
await call('batch: abort', 'ABORT_BATCH', {}, '', inBatch);
await call('batch: what was aborted', 'GET', {keyValue: {key: 'b3'}});

for (const [name, type] of Object.entries({
  utilizations: 0, temperatures: 1, capacities: 2, configuration: 3, statistics: 4, messages: 5, limits: 6,
})) {
  await call(`getlog: ${name}`, 'GETLOG', {getLog: {types: [type]}});
}
await call('getlog: an unknown device log', 'GETLOG', {getLog: {types: [7], device: {name: 'com.example.none'}}});
await call('getlog: nothing', 'GETLOG', {getLog: {}});

for (const number of [1, 3, 5]) {
  plain.send('PUT', entry(`scan ${number}`, 'right', {force: 1}), 'wrong');
  await plain.receive();
}
for (const number of [2, 4]) {
  plain.send('PUT', entry(`scan ${number}`, 'right', {force: 1}), 'right');
  await plain.receive();
}
await call('mediascan', 'MEDIASCAN', between('scan 1', 'scan 9'));
await call('mediascan: as many as there are', 'MEDIASCAN', between('scan 1', 'scan 9', {maxReturned: 3}));
await call('mediascan: cut off', 'MEDIASCAN', between('scan 1', 'scan 9', {maxReturned: 1}));
await call('mediascan: from there', 'MEDIASCAN', between('scan 3', 'scan 9', {maxReturned: 1}));
await call('mediascan: nothing there', 'MEDIASCAN', between('x', 'z'));
await call('mediascan: too many', 'MEDIASCAN', between('x', 'z', {maxReturned: 201}));
await call('mediaoptimize', 'MEDIAOPTIMIZE', between('a', 'z'));

const to = {hostname: '127.0.0.1', port: peerPort};
await call('push', 'PEER2PEERPUSH', {p2pOperation: {peer: to, operation: [{key: 'k6', newKey: 'pushed', force: 1}]}});
await call('push: none', 'PEER2PEERPUSH', {p2pOperation: {peer: to, operation: [{key: 'none'}, {key: 'k6', version: 'v'}]}});
await call('push: no such peer', 'PEER2PEERPUSH', {p2pOperation: {peer: {...to, port: 1}, operation: [{key: 'k6'}]}});

await call('another cluster version', 'NOOP', {}, '', {header: {clusterVersion: 5}});
await call('setup', 'SETUP', {setup: {newClusterVersion: 3}});
await call('setup: the former version', 'NOOP');
await call('setup: back', 'SETUP', {setup: {newClusterVersion: 0}}, '', {header: {clusterVersion: 3}});
await call('a wrong signature', 'NOOP', {}, '', {hmac: Buffer.alloc(20)});
await call('after a wrong signature', 'NOOP');
await call('a number that was used before', 'NOOP', {}, '', {header: {sequence: 1}});
await call('after a number that was used before', 'NOOP');
await call('security without TLS', 'SECURITY', {security: {newErasePIN: 'e'}});
await call('an erase without TLS', 'PINOP', {pinOp: {pinOpType: 3}}, '', {pin: ''});

const stranger = new Connection(false);
await stranger.greet();
print('an unknown identity', stranger, await stranger.ask('NOOP', {}, '', {identity: 99, key: 'nothing'}));

const secure = new Connection(true);
const callSecure = async (name, ...request) => print(name, secure, await secure.ask(...request));
print('greeting over TLS', secure, await secure.greet());
await callSecure('security: an identity', 'SECURITY', {
  security: {acl: [{identity: 2, key: 'second', hmacAlgorithm: 1, scope: [{permission: [0, 3]}]}]},
});
await call('as this identity: get', 'GET', {keyValue: {key: 'b1'}}, '', {identity: 2, key: 'second'});
await call('as this identity: put', 'PUT', entry('k9', 'x'), 'x', {identity: 2, key: 'second'});
await call('as this identity: getlog', 'GETLOG', {getLog: {types: [2]}}, '', {identity: 2, key: 'second'});
await callSecure('security: no algorithm', 'SECURITY', {security: {acl: [{identity: 3, key: 'x', scope: [{permission: [0]}]}]}});
await callSecure('security: no permission', 'SECURITY', {
  security: {acl: [{identity: 3, key: 'x', hmacAlgorithm: 1, scope: [{}]}]},
});
await callSecure('security: two PINs at once', 'SECURITY', {security: {newErasePIN: 'e', newLockPIN: 'l'}});
await callSecure('security: nothing', 'SECURITY', {security: {}});
await callSecure('security: a lock PIN', 'SECURITY', {security: {oldLockPIN: '', newLockPIN: 'lock'}});
await callSecure('security: another lock PIN, wrong', 'SECURITY', {security: {oldLockPIN: 'x', newLockPIN: 'other'}});
await callSecure('lock: a wrong PIN', 'PINOP', {pinOp: {pinOpType: 2}}, '', {pin: 'wrong'});
await callSecure('lock', 'PINOP', {pinOp: {pinOpType: 2}}, '', {pin: 'lock'});
await call('while it is locked: get', 'GET', {keyValue: {key: 'b1'}});
await call('while it is locked: noop', 'NOOP');
await callSecure('unlock: a wrong PIN', 'PINOP', {pinOp: {pinOpType: 1}}, '', {pin: 'wrong'});
await callSecure('unlock', 'PINOP', {pinOp: {pinOpType: 1}}, '', {pin: 'lock'});
await call('after it was unlocked', 'GET', {keyValue: {key: 'b1'}});
await callSecure('security: an erase PIN', 'SECURITY', {security: {oldErasePIN: '', newErasePIN: 'erase'}});
await callSecure('erase: a wrong PIN', 'PINOP', {pinOp: {pinOpType: 3}}, '', {pin: 'wrong'});
await call('after an erase with a wrong PIN', 'GET', {keyValue: {key: 'b1'}});
await callSecure('erase', 'PINOP', {pinOp: {pinOpType: 3}}, '', {pin: 'erase'});
// Connections from before the erase go on.
await call('after the erase: get', 'GET', {keyValue: {key: 'b1'}});
await call('after the erase: getkeyrange', 'GETKEYRANGE', between('a', 'z'));
await call('after the erase: put', 'PUT', entry('k1', 'one', {newVersion: 'v1'}), 'one');
await call('after the erase: the identity that was there', 'NOOP', {}, '', {identity: 1});
await callSecure('secure erase', 'PINOP', {pinOp: {pinOpType: 4}}, '', {pin: 'any'});
await call('after the secure erase: get', 'GET', {keyValue: {key: 'k1'}});
await callSecure('after the secure erase, over TLS: noop', 'NOOP');
process.exit(0);
