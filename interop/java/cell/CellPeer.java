import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.RandomAccessFile;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;

/** The peer of docs/cell-clients/HoldfastCell.java: see ../../doc.go. CellPeer MEMBER,MEMBER… TTL_MS. */
class CellPeer {
  private static HoldfastCell.Lock lock;

  static void increment(Path path, long token) throws Exception {
    String[] words = Files.readString(path).strip().split(" ");
    long last = Long.parseLong(words[1]);
    if (token <= last) throw new IllegalStateException("token " + token + " after " + last);
    try (var file = new RandomAccessFile(path.toFile(), "rw")) {
      file.writeBytes((Long.parseLong(words[0]) + 1) + " " + token + "\n");
    }
  }

  static void count(HoldfastCell session, String name, Path path, int times) throws Exception {
    for (int i = 0; i < times; i++) {
      try (var held = session.acquire(name, 120)) {
        held.check();
        increment(path, held.token());
      }
    }
  }

  static String run(HoldfastCell session, String[] words) throws Exception {
    switch (words[0]) {
      case "lock":
        var taken = session.acquire(words[1], Long.parseLong(words[2]) / 1e3);
        lock = taken == null ? lock : taken;
        return taken == null ? "busy" : "held";
      case "check":
        lock.check();
        return "ok";
      case "unlock":
        lock.close();
        return "ok";
      case "count":
        count(session, words[1], Path.of(words[2]), Integer.parseInt(words[3]));
        return "ok";
      default:
        throw new IllegalArgumentException(words[0]);
    }
  }

  public static void main(String[] args) throws Exception {
    var members = Arrays.stream(args[0].split(",")).map(m -> "http://" + m).toList();
    try (var session = new HoldfastCell(members, Long.parseLong(args[1]) / 1e3)) {
      System.out.println("ready");
      var in = new BufferedReader(new InputStreamReader(System.in));
      for (String line; (line = in.readLine()) != null; ) {
        String answer;
        try {
          answer = run(session, line.split(" "));
        } catch (HoldfastCell.Lost e) {
          answer = "lost: " + e.getMessage();
        }
        System.out.println(answer);
      }
    }
  }
}
