// Seagate's Java client makes one call after the other, and prints what it was answered, each as a line of JSON:
// compare_answers.py compares what two devices have said.
//
//   java -cp 'JARS/*' JavaAnswers.java PORT TLS-PORT PEER-PORT

import com.google.gson.Gson;
import com.google.protobuf.ByteString;
import com.seagate.kinetic.common.lib.KineticMessage;
import com.seagate.kinetic.proto.Kinetic.Command.Priority;
import com.seagate.kinetic.proto.Kinetic.Command.Range;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import kinetic.admin.ACL;
import kinetic.admin.AdminClientConfiguration;
import kinetic.admin.Domain;
import kinetic.admin.KineticAdminClient;
import kinetic.admin.KineticAdminClientFactory;
import kinetic.admin.KineticLog;
import kinetic.admin.KineticLogType;
import kinetic.admin.Role;
import kinetic.client.BatchOperation;
import kinetic.client.ClientConfiguration;
import kinetic.client.Entry;
import kinetic.client.EntryMetadata;
import kinetic.client.KineticException;
import kinetic.client.advanced.AdvancedKineticClient;
import kinetic.client.advanced.AdvancedKineticClientFactory;
import kinetic.client.advanced.PersistOption;
import kinetic.client.p2p.KineticP2PClientFactory;
import kinetic.client.p2p.KineticP2pClient;
import kinetic.client.p2p.Operation;
import kinetic.client.p2p.Peer;
import kinetic.client.p2p.PeerToPeerOperation;

public class JavaAnswers {
  interface Call {
    Object make() throws Exception;
  }
  interface Action {
    void make() throws Exception;
  }

  static void call(String name, Call call) {
    Map<String, Object> answer = new LinkedHashMap<>();
    try {
      answer.put("result", printable(call.make()));
    } catch (Exception exception) {
      answer.put("exception", exception.getClass().getSimpleName());
      if (exception instanceof KineticException && ((KineticException) exception).getResponseMessage() != null) {
        KineticMessage response = ((KineticException) exception).getResponseMessage();
        answer.put("status", response.getCommand().getStatus().getCode().name());
        answer.put("message", response.getCommand().getStatus().getStatusMessage());
      } else {
        answer.put("message", String.valueOf(exception.getMessage()));
      }
    }
    Map<String, Object> line = new LinkedHashMap<>();
    line.put("call", name);
    line.put("answer", answer);
    System.out.println(new Gson().toJson(line));
  }
  static void act(String name, Action action) {
    call(name, () -> {
      action.make();
      return "done";
    });
  }

  static Object printable(Object value) {
    if (value instanceof byte[]) {
      byte[] bytes = (byte[]) value;
      if (bytes.length > 200) return bytes.length + " bytes, hash " + Arrays.hashCode(bytes);
      for (byte each : bytes) {
        if (each < 0x20 || each > 0x7e) return "0x" + String.format("%0" + 2 * bytes.length + "x", new java.math.BigInteger(1, bytes));
      }
      return new String(bytes, StandardCharsets.US_ASCII);
    }
    if (value instanceof ByteString) return printable(((ByteString) value).toByteArray());
    if (value instanceof List) {
      List<Object> all = new ArrayList<>();
      for (Object each : (List<?>) value) all.add(printable(each));
      return all;
    }
    if (value instanceof Entry) {
      Map<String, Object> fields = new LinkedHashMap<>();
      fields.put("key", printable(((Entry) value).getKey()));
      fields.put("value", printable(((Entry) value).getValue()));
      fields.put("metadata", printable(((Entry) value).getEntryMetadata()));
      return fields;
    }
    if (value instanceof EntryMetadata) {
      Map<String, Object> fields = new LinkedHashMap<>();
      fields.put("version", printable(((EntryMetadata) value).getVersion()));
      fields.put("tag", printable(((EntryMetadata) value).getTag()));
      fields.put("algorithm", ((EntryMetadata) value).getAlgorithm());
      return fields;
    }
    if (value instanceof KineticMessage) {
      Range range = ((KineticMessage) value).getCommand().getBody().getRange();
      Map<String, Object> fields = new LinkedHashMap<>();
      fields.put("keys", printable(range.getKeysList()));
      fields.put("endKey", printable(range.getEndKey()));
      fields.put("status", ((KineticMessage) value).getCommand().getStatus().getCode().name());
      return fields;
    }
    if (value instanceof PeerToPeerOperation) {
      Map<String, Object> fields = new LinkedHashMap<>();
      fields.put("status", ((PeerToPeerOperation) value).getStatus());
      List<Object> operations = new ArrayList<>();
      for (Operation each : ((PeerToPeerOperation) value).getOperationList()) {
        Map<String, Object> operation = new LinkedHashMap<>();
        operation.put("key", printable(each.getKey()));
        operation.put("newKey", printable(each.getNewKey()));
        operation.put("version", printable(each.getVersion()));
        operation.put("forced", each.getForced());
        operation.put("status", String.valueOf(each.getStatusCode()));
        operations.add(operation);
      }
      fields.put("operations", operations);
      return fields;
    }
    return value;
  }

  static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.US_ASCII);
  }
  static Entry entry(String key, String value, String version) {
    EntryMetadata metadata = new EntryMetadata();
    if (version != null) metadata.setVersion(bytes(version));
    metadata.setTag(bytes("a tag"));
    metadata.setAlgorithm("SHA1");
    return new Entry(bytes(key), bytes(value), metadata);
  }
  static Range between(String first, String last, int most) {
    Range.Builder range = Range.newBuilder();
    range.setStartKey(ByteString.copyFrom(bytes(first))).setEndKey(ByteString.copyFrom(bytes(last)));
    range.setStartKeyInclusive(true).setEndKeyInclusive(true).setMaxReturned(most);
    return range.build();
  }

  static void ordinary(AdvancedKineticClient client) {
    call("noop", () -> client.noop() >= 0);
    call("put", () -> client.put(entry("k1", "one", null), bytes("v1")));
    call("put: there is one", () -> client.put(entry("k1", "two", null), bytes("v2")));
    call("put: another version", () -> client.put(entry("k1", "two", "v0"), bytes("v2")));
    call("put: the right version", () -> client.put(entry("k1", "two", "v1"), bytes("v2")));
    call("put: forced", () -> client.putForced(entry("k1", "three", "v3")));
    call("put: written back", () -> client.put(entry("k2", "", null), bytes("v"), PersistOption.ASYNC));
    call("put: flushed", () -> client.put(entry("k3", "x", null), bytes("v"), PersistOption.FLUSH));
    call("put: the largest value", () -> client.putForced(entry("large", "L".repeat(1 << 20), "v")).getKey());
    call("put: a longer key", () -> client.putForced(entry("K".repeat(4097), "x", null)));
    call("put: a longer version", () -> client.put(entry("VV", "x", null), bytes("V".repeat(2049))));
    call("get", () -> client.get(bytes("k1")));
    call("get: none", () -> client.get(bytes("none")));
    call("get: an empty value", () -> client.get(bytes("k2")));
    call("get: the largest value", () -> client.get(bytes("large")));
    call("get: metadata", () -> client.getMetadata(bytes("k1")));
    call("get: metadata of none", () -> client.getMetadata(bytes("none")));
    call("getversion", () -> client.getVersion(bytes("k1")));
    call("getversion: none", () -> client.getVersion(bytes("none")));
    call("getnext", () -> client.getNext(bytes("k1")));
    call("getnext: the end", () -> client.getNext(bytes("z")));
    call("getprevious", () -> client.getPrevious(bytes("k3")));
    call("getprevious: the end", () -> client.getPrevious(bytes("A")));
    call("getkeyrange", () -> client.getKeyRange(bytes("k1"), true, bytes("k3"), true, 200));
    call("getkeyrange: without ends", () -> client.getKeyRange(bytes("k1"), false, bytes("k3"), false, 200));
    call("getkeyrange: backwards", () -> client.getKeyRangeReversed(bytes("k1"), true, bytes("k3"), true, 2));
    call("getkeyrange: no keys", () -> client.getKeyRange(bytes("x"), true, bytes("z"), true, 200));
    call("getkeyrange: too many", () -> client.getKeyRange(bytes("k1"), true, bytes("k3"), true, 201));
    call("delete: another version", () -> client.delete(entry("k3", "", "v0")));
    call("delete", () -> client.delete(entry("k3", "", "v")));
    call("delete: none", () -> client.delete(entry("k3", "", "v")));
    call("delete: none, forced", () -> client.deleteForced(bytes("k3")));
    act("flush", client::flush);
    act("batch", () -> {
      BatchOperation batch = client.createBatchOperation();
      batch.put(entry("b1", "one", null), bytes("v1"));
      batch.deleteForced(bytes("k2"));
      batch.commit();
    });
    call("batch: what was put", () -> client.get(bytes("b1")));
    call("batch: what was deleted", () -> client.get(bytes("k2")));
    act("batch: with a wrong version", () -> {
      BatchOperation batch = client.createBatchOperation();
      batch.put(entry("b2", "one", null), bytes("v1"));
      batch.put(entry("b1", "two", "v0"), bytes("v2"));
      batch.commit();
    });
    call("batch: what was not put", () -> client.get(bytes("b2")));
    act("batch: abort", () -> {
      BatchOperation batch = client.createBatchOperation();
      batch.putForced(entry("b3", "one", null));
      batch.abort();
    });
    call("batch: what was aborted", () -> client.get(bytes("b3")));
  }

  static void push(KineticP2pClient client, int port) {
    Peer peer = new Peer();
    peer.setHost("127.0.0.1");
    peer.setPort(port);
    call("push", () -> {
      PeerToPeerOperation push = new PeerToPeerOperation();
      push.setPeer(peer);
      for (String key : new String[] {"k1", "none"}) {
        Operation operation = new Operation();
        operation.setKey(bytes(key));
        operation.setNewKey(bytes("pushed " + key));
        operation.setForced(true);
        push.addOperation(operation);
      }
      return client.PeerToPeerPush(push);
    });
  }

  // What a program finds that takes everything by its place.
  static void logs(KineticAdminClient admin) {
    call("getlog: contained", () -> {
      List<Object> types = new ArrayList<>();
      for (KineticLogType each : admin.getLog().getContainedLogTypes()) types.add(each.name());
      return types;
    });
    call("getlog: utilizations", () -> {
      List<Object> all = new ArrayList<>();
      for (int i = 0; i < 4; ++i) {
        all.add(Arrays.asList(admin.getLog().getUtilization().get(i).getName(),
            admin.getLog().getUtilization().get(i).getUtility()));
      }
      return all;
    });
    call("getlog: temperatures", () -> {
      List<Object> all = new ArrayList<>();
      KineticLog log = admin.getLog(Arrays.asList(KineticLogType.TEMPERATURES));
      for (int i = 0; i < 2; ++i) {
        all.add(Arrays.asList(log.getTemperature().get(i).getName(), log.getTemperature().get(i).getCurrent()));
      }
      return all;
    });
    call("getlog: capacities", () -> {
      KineticLog log = admin.getLog(Arrays.asList(KineticLogType.CAPACITIES));
      return Arrays.asList(log.getCapacity().getNominalCapacityInBytes() > 0, log.getCapacity().getPortionFull() >= 0);
    });
    call("getlog: configuration", () -> admin.getLog(Arrays.asList(KineticLogType.CONFIGURATION)).getConfiguration());
    call("getlog: statistics", () -> admin.getLog(Arrays.asList(KineticLogType.STATISTICS)).getStatistics());
    call("getlog: messages", () -> admin.getLog(Arrays.asList(KineticLogType.MESSAGES)).getMessages().length > 0);
    call("getlog: limits", () -> admin.getLog(Arrays.asList(KineticLogType.LIMITS)).getLimits());
    call("getlog: an unknown device log", () -> admin.getVendorSpecificDeviceLog(bytes("com.example.none")).getValue());
  }

  public static void main(String[] arguments) throws Exception {
    ClientConfiguration plain = new ClientConfiguration();
    plain.setHost("127.0.0.1");
    plain.setPort(Integer.parseInt(arguments[0]));
    plain.setRequestTimeoutMillis(10000);
    AdvancedKineticClient client = AdvancedKineticClientFactory.createAdvancedClientInstance(plain);
    ordinary(client);
    push(KineticP2PClientFactory.createP2pClient(plain), Integer.parseInt(arguments[2]));
    AdminClientConfiguration secure = new AdminClientConfiguration();
    secure.setHost("127.0.0.1");
    secure.setPort(Integer.parseInt(arguments[1]));
    secure.setUseSsl(true);
    secure.setRequestTimeoutMillis(10000);
    KineticAdminClient admin = KineticAdminClientFactory.createInstance(secure);
    logs(admin);
    for (int i = 1; i <= 3; ++i) client.putForced(entry("scan " + i, "value", null));
    call("mediascan", () -> admin.mediaScan(between("scan 1", "scan 9", 200), Priority.NORMAL));
    call("mediascan: cut off", () -> admin.mediaScan(between("scan 1", "scan 9", 1), Priority.NORMAL));
    call("mediascan: from there", () -> admin.mediaScan(between("scan 2", "scan 9", 2), Priority.NORMAL));
    call("mediaoptimize", () -> admin.mediaOptimize(between("a", "z", 200), Priority.NORMAL));
    act("setup", () -> admin.setClusterVersion(3));
    call("setup: the former version", () -> client.noop());
    ClientConfiguration later = new ClientConfiguration();
    later.setHost("127.0.0.1");
    later.setPort(Integer.parseInt(arguments[0]));
    later.setClusterVersion(3);
    AdminClientConfiguration back = new AdminClientConfiguration();
    back.setHost("127.0.0.1");
    back.setPort(Integer.parseInt(arguments[1]));
    back.setUseSsl(true);
    back.setClusterVersion(3);
    act("setup: back", () -> KineticAdminClientFactory.createInstance(back).setClusterVersion(0));
    act("security: an identity", () -> {
      ACL acl = new ACL();
      acl.setUserId(2);
      acl.setKey("second");
      Domain domain = new Domain();
      domain.setRoles(Arrays.asList(Role.READ));
      acl.setDomains(Arrays.asList(domain));
      admin.setAcl(Arrays.asList(acl));
    });
    ClientConfiguration second = new ClientConfiguration();
    second.setHost("127.0.0.1");
    second.setPort(Integer.parseInt(arguments[0]));
    second.setUserId(2);
    second.setKey("second");
    AdvancedKineticClient reader = AdvancedKineticClientFactory.createAdvancedClientInstance(second);
    call("as this identity: get", () -> reader.get(bytes("b1")));
    call("as this identity: put", () -> reader.putForced(entry("k9", "x", null)));
    act("security: a lock PIN", () -> admin.setLockPin(null, bytes("lock")));
    act("lock", () -> admin.lockDevice(bytes("lock")));
    call("while it is locked: get", () -> client.get(bytes("b1")));
    act("unlock: a wrong PIN", () -> admin.unLockDevice(bytes("wrong")));
    act("unlock", () -> admin.unLockDevice(bytes("lock")));
    call("after it was unlocked", () -> client.get(bytes("b1")));
    act("security: an erase PIN", () -> admin.setErasePin(null, bytes("erase")));
    act("erase: a wrong PIN", () -> admin.instantErase(bytes("wrong")));
    act("erase", () -> admin.instantErase(bytes("erase")));
    // Clients from before the erase go on.
    call("after the erase: get", () -> client.get(bytes("b1")));
    call("after the erase: getkeyrange", () -> client.getKeyRange(bytes("a"), true, bytes("z"), true, 10));
    call("after the erase: put", () -> client.put(entry("k1", "one", null), bytes("v1")));
    act("security: an erase PIN again", () -> admin.setErasePin(null, bytes("erase")));
    act("secure erase", () -> admin.secureErase(bytes("erase")));
    call("after the secure erase: get", () -> client.get(bytes("k1")));
    System.exit(0);
  }
}
