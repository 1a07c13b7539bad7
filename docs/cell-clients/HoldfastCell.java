// SPDX-License-Identifier: Apache-2.0
import com.google.gson.Gson;
import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import com.google.gson.JsonParseException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;

/**
 * A small client of Holdfast's cell: a session, which a thread keeps alive until it is closed or lost.
 * Threads may share it. It needs Java 17 and Gson.
 *
 * <pre>{@code
 * try (var session = new HoldfastCell(List.of("http://a:7433", "http://b:7433", "http://c:7433"), 30);
 *      var lock = session.acquire("reports/nightly", 60)) {
 *   lock.check(); // before each step of the work: throws Lost
 *   save(report, lock.token());
 * }
 * }</pre>
 *
 * Copy this file. docs/cell-api.md explains the calls and the rules that it follows. All times are seconds.
 */
public final class HoldfastCell implements AutoCloseable {
  /** The cell has refused what was asked, for a reason such as "REASON_HELD". */
  public static final class CellError extends RuntimeException {
    public final String reason;

    private CellError(JsonObject answer) {
      super(text(answer, "code") + ": " + text(answer, "message"));
      JsonArray details = answer.getAsJsonArray("details");
      JsonObject debug = details == null ? null : details.get(0).getAsJsonObject().getAsJsonObject("debug");
      reason = debug == null ? "" : text(debug, "reason");
    }
  }

  /** No member has answered. What was asked may have been done. */
  public static final class Unanswered extends RuntimeException {
    private Unanswered(String why, Throwable cause) {
      super(why, cause);
    }
  }

  /** The lock is not held any more, or cannot be trusted to be. */
  public static final class Lost extends RuntimeException {
    private Lost(String why) {
      super(why);
    }
  }

  /**
   * A moment. Java's monotonic clock stands still while the host is suspended, and the wall clock may be
   * set. Whichever says that more time has passed is believed: so nothing is trusted for too long.
   */
  private record Moment(long nanos, long wall) {
    static Moment now() {
      return new Moment(System.nanoTime(), System.currentTimeMillis());
    }

    double passed() {
      return Math.max((System.nanoTime() - nanos) / 1e9, (System.currentTimeMillis() - wall) / 1e3);
    }
  }

  private record Answer(Moment sent, JsonObject body, int tries) {}

  private static final double CUT = 20; // a waiting call is made again after this time: a member may be silent
  private static final double PATIENCE = 5; // for a call that is not parked

  private final Gson gson = new Gson();
  private final HttpClient http = HttpClient.newBuilder()
      .version(HttpClient.Version.HTTP_1_1).connectTimeout(Duration.ofSeconds(2)).build();
  private final List<String> members;
  private volatile int at; // index of the member that is used
  private final String session;
  private final double ttl;
  private String cursor;
  private final Map<String, Lock> locks = new HashMap<>(); // by request id, also those being acquired
  private Moment sent = Moment.now(); // the session is trusted
  private double valid; // for so long after it
  private String over; // why the session has ended

  /** Opens a session. */
  public HoldfastCell(List<String> members, double ttl) throws InterruptedException {
    this.members = List.copyOf(members);
    Moment begin = sent;
    Answer opened = call("Sessions/Open", Map.of("ttl", ttl + "s"), () -> begin.passed() < ttl);
    session = text(opened.body, "session");
    cursor = text(opened.body, "cursor");
    this.ttl = seconds(opened.body, "ttl");
    extended(opened.sent, seconds(opened.body, "extendedAfter"));
    Thread thread = new Thread(this::keepAlive, "holdfast session");
    thread.setDaemon(true);
    thread.start();
  }

  private static String text(JsonObject o, String field) {
    return o.has(field) ? o.get(field).getAsString() : "";
  }

  private static double seconds(JsonObject o, String field) {
    return o.has(field) ? Double.parseDouble(text(o, field).replace("s", "")) : 0;
  }

  private void leave(int left) {
    if (at == left) at = (left + 1) % members.size(); // else another thread has left it
  }

  /** Makes a call once. If that fails, the next one goes to another member. */
  private Answer once(String method, Object request, double timeout) throws InterruptedException {
    int to = at;
    var post = HttpRequest.newBuilder(URI.create(members.get(to) + "/holdfast.cell.v1." + method))
        .header("Content-Type", "application/json")
        .POST(HttpRequest.BodyPublishers.ofString(gson.toJson(request))).build();
    Moment sent = Moment.now();
    var response = http.sendAsync(post, HttpResponse.BodyHandlers.ofString());
    int status;
    JsonObject body;
    try {
      status = response.get((long) (timeout * 1e3), TimeUnit.MILLISECONDS).statusCode();
      body = gson.fromJson(response.get().body(), JsonObject.class);
      if (body == null) throw new JsonParseException("there is no answer");
    } catch (ExecutionException | TimeoutException | JsonParseException e) {
      leave(to);
      throw new Unanswered(members.get(to) + ": " + e, e);
    } finally {
      response.cancel(true);
    }
    boolean failed = status >= 500 || status == 429;
    if (failed || body.has("memberStopping")) leave(to);
    if (failed) throw new Unanswered(members.get(to) + ": " + text(body, "message"), null);
    if (status != 200) throw new CellError(body);
    return new Answer(sent, body, 1);
  }

  /** Makes a call as long as it is wanted, until a member answers. */
  private Answer call(String method, Object request, BooleanSupplier wanted) throws InterruptedException {
    for (int tries = 1; ; tries++) {
      try {
        Answer a = once(method, request, PATIENCE);
        return new Answer(a.sent, a.body, tries);
      } catch (Unanswered e) {
        if (!wanted.getAsBoolean()) throw e;
        rest(tries);
      }
    }
  }

  /** Pauses after failures: not for the first ones, because other members are asked then. */
  private void rest(int failures) throws InterruptedException {
    int rounds = failures / members.size();
    if (rounds > 0) Thread.sleep(50L << Math.min(rounds, 3));
  }

  /**
   * The TTL began when the member sent the extension: not before "sent" plus "after". A fiftieth is for
   * clocks that run at different rates, and for the time between a check and the act.
   */
  private synchronized void extended(Moment from, double after) {
    double newly = after + ttl * 0.98;
    if (newly - from.passed() > valid - sent.passed()) {
      sent = from;
      valid = newly;
    }
  }

  private synchronized void end(String why) {
    if (over == null) over = why;
  }

  private synchronized boolean trusted() {
    if (sent.passed() >= valid) end("no member has extended the session in time");
    return over == null;
  }

  /** Throws Lost unless the session is alive and trusted. */
  public synchronized void check() {
    if (!trusted()) throw new Lost(over);
  }

  private void keepAlive() {
    try {
      for (int failures = 0; trusted(); rest(failures)) {
        String nonce = UUID.randomUUID().toString();
        failures++;
        try {
          Answer a = once("Sessions/KeepAlive", Map.of("session", session, "cursor", cursor, "nonce", nonce), ttl * 0.6);
          if (!text(a.body, "nonce").equals(nonce)) continue; // it is of another call
          take(a.sent, a.body);
          if (!a.body.has("memberStopping")) failures = 0;
        } catch (Unanswered e) {
          // the next member is asked
        }
      }
    } catch (InterruptedException | RuntimeException e) {
      end(e.getMessage());
    }
  }

  /** Takes in what an answer tells: losses first, so that a lock that is gone is not trusted. */
  private synchronized void take(Moment from, JsonObject answer) {
    for (var event : list(answer, "events")) {
      JsonObject lost = event.getAsJsonObject().getAsJsonObject("lost");
      Lock lock = lost == null ? null : locks.get(text(lost, "request"));
      if (lock != null) lock.gone(lost.get("revision").getAsLong());
    }
    if (answer.has("complete")) {
      Map<String, Long> there = new HashMap<>();
      for (var h : list(answer, "holdings")) {
        there.put(text(h.getAsJsonObject(), "request"), h.getAsJsonObject().get("revision").getAsLong() - 1);
      }
      long revision = answer.get("revision").getAsLong();
      for (var lock : locks.values()) lock.gone(there.getOrDefault(lock.request, revision)); // what it had before
    }
    if (!text(answer, "cursor").isEmpty()) cursor = text(answer, "cursor");
    if (answer.has("session")) extended(from, seconds(answer.getAsJsonObject("session"), "after"));
  }

  private static JsonArray list(JsonObject o, String field) {
    return o.has(field) ? o.getAsJsonArray(field) : new JsonArray();
  }

  /** Waits for a lock, for so long at most. Returns null if somebody else has it. */
  public Lock acquire(String name, double wait) throws InterruptedException {
    Lock lock = new Lock(name);
    synchronized (this) {
      locks.put(lock.request, lock);
    }
    JsonObject granted = null;
    try {
      granted = acquire(lock, wait);
    } catch (CellError e) {
      if (!e.reason.equals("REASON_HELD")) throw e;
    } finally {
      if (granted == null) withdraw(lock);
    }
    return granted == null ? null : lock.granted(granted);
  }

  private JsonObject acquire(Lock lock, double wait) throws InterruptedException {
    Moment begin = Moment.now();
    for (int failures = 0; ; rest(failures)) {
      check();
      double left = Math.max(wait - begin.passed(), 0);
      Moment asked = Moment.now();
      boolean before = lock.unsure;
      lock.unsure = true;
      try { // the same request again finds its place, or its hold, at any member
        JsonObject answer = once("Locks/Acquire", Map.of("session", session, "name", lock.name,
            "request", lock.request, "wait", String.format(Locale.ROOT, "%.3fs", Math.min(left, 60))),
            left > CUT ? CUT : left + PATIENCE).body;
        lock.unsure = before;
        return answer;
      } catch (CellError e) {
        lock.unsure = before;
        throw e;
      } catch (Unanswered e) {
        if (begin.passed() > wait + PATIENCE) throw e;
        failures = asked.passed() >= CUT ? 0 : failures + 1;
      }
    }
  }

  /** Gives up a request. If some call of it got no answer, that may arrive yet: the cell is told. */
  private void withdraw(Lock lock) throws InterruptedException {
    boolean interrupted = Thread.interrupted();
    try {
      if (lock.unsure) release(lock);
    } finally {
      synchronized (this) {
        locks.remove(lock.request);
      }
      if (interrupted) Thread.currentThread().interrupt();
    }
  }

  private Answer release(Lock lock) throws InterruptedException {
    return call("Locks/Release", Map.of("session", session, "locks", List.of(Map.of("name", lock.name,
        "request", lock.request, "token", "" + lock.token, "retried", lock.unsure))), this::trusted);
  }

  /** Ends the session, and releases all that it has. */
  @Override
  public void close() throws InterruptedException {
    if (!trusted()) return;
    end("it was closed");
    Moment begin = Moment.now();
    try {
      call("Sessions/Close", Map.of("session", session), () -> begin.passed() < PATIENCE);
    } catch (Unanswered | CellError e) {
      // it ends with its TTL, or has ended
    }
  }

  /** A lock of the session. Its token is larger than that of each holder before. */
  public final class Lock implements AutoCloseable {
    private final String name;
    private final String request = UUID.randomUUID().toString();
    private long token;
    private long revision; // of the hold
    private long gone; // what the request had of this revision, and of those before, is gone
    private boolean unsure; // some call of the request got no answer

    private Lock(String name) {
      this.name = name;
    }

    private Lock granted(JsonObject answer) {
      synchronized (HoldfastCell.this) {
        token = answer.get("token").getAsLong();
        revision = answer.get("revision").getAsLong();
        return this;
      }
    }

    private void gone(long through) {
      gone = Math.max(gone, through);
    }

    public long token() {
      return token;
    }

    /** Throws Lost unless the lock is held and trusted. It asks nobody. */
    public void check() {
      synchronized (HoldfastCell.this) {
        HoldfastCell.this.check();
        if (revision <= gone) throw new Lost("the hold has been ended");
      }
    }

    /** Releases the lock. Throws Lost if it was lost before. */
    @Override
    public void close() throws InterruptedException {
      synchronized (HoldfastCell.this) {
        check();
        gone(revision); // it is not held from here on
        locks.remove(request);
      }
      try {
        Answer a = release(this);
        String outcome = a.body.getAsJsonArray("outcomes").get(0).getAsString();
        if (a.tries == 1 && !outcome.equals("REASON_UNSPECIFIED")) throw new Lost(outcome); // later ones are its own
      } catch (CellError e) {
        throw new Lost(e.getMessage());
      }
    }
  }
}
