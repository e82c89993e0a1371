// Seagate's Java client against a pinstriped that it knows nothing of: the ordinary operations on a plain port, batches,
// pushes to two peers, and what needs TLS. Prints a line for each promise; the exit code is the number of those broken.
//
//   java -cp 'JARS/*' JavaClient.java PORT TLS-PORT PEER-PORT...

import java.util.Arrays;
import java.util.List;
import kinetic.admin.AdminClientConfiguration;
import kinetic.admin.KineticAdminClient;
import kinetic.admin.KineticAdminClientFactory;
import kinetic.client.BatchOperation;
import kinetic.client.ClientConfiguration;
import kinetic.client.Entry;
import kinetic.client.EntryMetadata;
import kinetic.client.KineticClient;
import kinetic.client.KineticClientFactory;
import kinetic.client.KineticException;
import kinetic.client.p2p.KineticP2PClientFactory;
import kinetic.client.p2p.KineticP2pClient;
import kinetic.client.p2p.Operation;
import kinetic.client.p2p.Peer;
import kinetic.client.p2p.PeerToPeerOperation;

public class JavaClient {
  interface Promise {
    boolean kept() throws Exception;
  }

  static int broken = 0;

  static void check(String what, Promise promise) {
    boolean kept = false;
    String why = "";
    try {
      kept = promise.kept();
    } catch (Exception exception) {
      why = ": " + exception;
    }
    System.out.println((kept ? "PASS" : "FAIL") + " 20-java-client: " + what + why);
    if (!kept) ++broken;
  }

  interface Action {
    void run() throws KineticException;
  }
  static boolean refused(Action action) {
    try {
      action.run();
      return false;
    } catch (KineticException expected) {
      return true;
    }
  }

  static byte[] bytes(String text) {
    return text.getBytes();
  }
  static byte[] key(int number) {
    return bytes(String.format("key %04d", number));
  }
  static Entry entry(byte[] key, byte[] value, String version) {
    EntryMetadata metadata = new EntryMetadata();
    metadata.setVersion(version == null ? null : bytes(version));
    return new Entry(key, value, metadata);
  }
  static byte[] pattern(int size) {
    byte[] value = new byte[size];
    for (int i = 0; i < size; ++i) value[i] = (byte) (i * 31 + i / 251);
    return value;
  }
  static boolean is(KineticClient client, byte[] key, String value) throws KineticException {
    Entry found = client.get(key);
    return value == null ? found == null : found != null && Arrays.equals(found.getValue(), bytes(value));
  }

  static void ordinary(KineticClient client) {
    check("NOOP is answered", () -> client.noop() >= 0);
    for (int size : new int[] {0, 1, 4096, 1 << 20}) {
      check("a value of " + size + " bytes comes back", () -> {
        client.put(entry(bytes("sized " + size), pattern(size), null), bytes("v1"));
        Entry found = client.get(bytes("sized " + size));
        return Arrays.equals(found.getValue(), pattern(size))
            && Arrays.equals(found.getEntryMetadata().getVersion(), bytes("v1"))
            && client.deleteForced(bytes("sized " + size));
      });
    }
    check("one byte more is refused",
        () -> refused(() -> client.putForced(entry(bytes("large"), pattern((1 << 20) + 1), null))));
    check("a put of another version is refused, and changes nothing", () -> {
      client.put(entry(bytes("k"), bytes("one"), null), bytes("v1"));
      return refused(() -> client.put(entry(bytes("k"), bytes("two"), "v0"), bytes("v2")))
          && is(client, bytes("k"), "one");
    });
    check("one of the right version is made", () -> {
      client.put(entry(bytes("k"), bytes("two"), "v1"), bytes("v2"));
      return is(client, bytes("k"), "two") && Arrays.equals(client.getVersion(bytes("k")), bytes("v2"));
    });
    check("metadata comes without the value",
        () -> Arrays.equals(client.getMetadata(bytes("k")).getVersion(), bytes("v2")));
    check("a delete of another version is refused",
        () -> refused(() -> client.delete(entry(bytes("k"), null, "v1"))) && is(client, bytes("k"), "two"));
    check("one of the right version is made",
        () -> client.delete(entry(bytes("k"), null, "v2")) && is(client, bytes("k"), null));
    check("to delete what is not there is no success", () -> !client.delete(entry(bytes("k"), null, "v2")));
    check("200 keys come in order, with their ends or without", () -> {
      for (int i = 0; i < 300; ++i) client.putForced(entry(key(i), bytes("value " + i), null));
      List<byte[]> all = client.getKeyRange(key(10), true, key(250), true, 200);
      List<byte[]> inner = client.getKeyRange(key(10), false, key(13), false, 200);
      for (int i = 0; i < 200; ++i) {
        if (!Arrays.equals(all.get(i), key(10 + i))) return false;
      }
      return all.size() == 200 && inner.size() == 2 && Arrays.equals(inner.get(0), key(11));
    });
    check("next and previous find the neighbours", () ->
        Arrays.equals(client.getNext(key(7)).getKey(), key(8))
            && Arrays.equals(client.getPrevious(key(7)).getKey(), key(6))
            && client.getNext(key(299)) == null);
    check("flush is answered", () -> {
      client.flush();
      return true;
    });
    check("a batch is made as a whole", () -> {
      BatchOperation batch = client.createBatchOperation();
      batch.putForced(entry(bytes("batch 1"), bytes("one"), null));
      batch.put(entry(bytes("batch 2"), bytes("two"), null), bytes("v"));
      batch.deleteForced(key(0));
      batch.commit();
      return is(client, bytes("batch 1"), "one") && is(client, bytes("batch 2"), "two")
          && is(client, key(0), null);
    });
    check("or not at all", () -> {
      BatchOperation batch = client.createBatchOperation();
      batch.deleteForced(bytes("batch 1"));
      batch.put(entry(bytes("batch 2"), bytes("three"), "another"), bytes("w"));
      boolean failed = refused(batch::commit);
      return failed && is(client, bytes("batch 1"), "one") && is(client, bytes("batch 2"), "two");
    });
    check("nor when it is aborted", () -> {
      BatchOperation batch = client.createBatchOperation();
      batch.deleteForced(bytes("batch 1"));
      batch.abort();
      return is(client, bytes("batch 1"), "one");
    });
  }

  static void push(KineticP2pClient client, int peer, String name) {
    check("records are pushed to " + name, () -> {
      PeerToPeerOperation push = new PeerToPeerOperation();
      Peer to = new Peer();
      to.setHost("127.0.0.1");
      to.setPort(peer);
      push.setPeer(to);
      for (int i = 1; i <= 20; ++i) {
        Operation operation = new Operation();
        operation.setKey(key(i));
        operation.setNewKey(bytes("pushed " + i));
        operation.setForced(true);
        push.addOperation(operation);
      }
      PeerToPeerOperation done = client.PeerToPeerPush(push);
      ClientConfiguration there = new ClientConfiguration();
      there.setHost("127.0.0.1");
      there.setPort(peer);
      KineticClient reader = KineticClientFactory.createInstance(there);
      boolean arrived = done.getStatus();
      for (int i = 1; i <= 20; ++i) arrived = arrived && is(reader, bytes("pushed " + i), "value " + i);
      reader.close();
      return arrived;
    });
  }

  static void administered(KineticAdminClient admin, KineticClient client) {
    check("the log tells capacity, limits and statistics", () ->
        admin.getLog().getCapacity().getNominalCapacityInBytes() > 0
            && admin.getLog().getLimits().getMaxValueSize() == 1 << 20
            && !admin.getLog().getStatistics().isEmpty());
    check("our capabilities are a device log like any other", () ->
        new String(admin.getVendorSpecificDeviceLog(bytes("io.pinstripe.capabilities")).getValue())
            .contains("range_get 1"));
    check("a locked device serves nobody, and an unlocked one goes on", () -> {
      admin.setLockPin(null, bytes("lock"));
      admin.lockDevice(bytes("lock"));
      boolean locked = refused(() -> client.get(key(1)));
      boolean wrong = refused(() -> admin.unLockDevice(bytes("another")));
      admin.unLockDevice(bytes("lock"));
      return locked && wrong && is(client, key(1), "value 1");
    });
    check("an erase with a wrong PIN is refused", () -> {
      admin.setErasePin(null, bytes("erase"));
      return refused(() -> admin.instantErase(bytes("another"))) && is(client, key(1), "value 1");
    });
    check("one with the right PIN leaves nothing, and the client goes on with that", () -> {
      admin.instantErase(bytes("erase"));
      return client.getKeyRange(bytes(" "), true, bytes("~"), true, 10).isEmpty() && is(client, key(1), null);
    });
  }

  public static void main(String[] arguments) throws Exception {
    int[] ports = Arrays.stream(arguments).mapToInt(Integer::parseInt).toArray();
    ClientConfiguration plain = new ClientConfiguration();
    plain.setHost("127.0.0.1");
    plain.setPort(ports[0]);
    KineticClient client = KineticClientFactory.createInstance(plain);
    ordinary(client);
    KineticP2pClient pusher = KineticP2PClientFactory.createP2pClient(plain);
    push(pusher, ports[2], "another pinstriped");
    push(pusher, ports[3], "a Kinetic simulator");
    AdminClientConfiguration secure = new AdminClientConfiguration();
    secure.setHost("127.0.0.1");
    secure.setPort(ports[1]);
    secure.setUseSsl(true);
    administered(KineticAdminClientFactory.createInstance(secure), client);
    System.out.println(broken == 0 ? "20-java-client: all checks passed"
                                   : "20-java-client: " + broken + " of its checks failed");
    System.exit(Math.min(broken, 1));
  }
}
