import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.ThreadLocalRandom;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.params.SetParams;

/**
 * A peer, the lock that tutorials write with Jedis: SET NX PX, and scripts that compare the value. See
 * ../doc.go.
 *
 * <pre>Peer HOST PORT</pre>
 */
public final class Peer {
    private static final String UNLOCK =
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
    private static final String EXTEND =
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";

    private final Jedis jedis;
    private String name;
    private String value;

    private Peer(Jedis jedis) {
        this.jedis = jedis;
    }

    private boolean lock(String name, long ttl) {
        String value = UUID.randomUUID().toString();
        if (!"OK".equals(jedis.set(name, value, SetParams.setParams().nx().px(ttl)))) {
            return false;
        }
        this.name = name;
        this.value = value;
        return true;
    }

    private boolean extend(long ttl) {
        return Long.valueOf(1).equals(jedis.eval(EXTEND, List.of(name), List.of(value, Long.toString(ttl))));
    }

    private boolean unlock() {
        return Long.valueOf(1).equals(jedis.eval(UNLOCK, List.of(name), List.of(value)));
    }

    private void count(String name, String key, int times) throws InterruptedException {
        for (int i = 0; i < times; i++) {
            while (!lock(name, 30_000)) {
                Thread.sleep(10);
            }
            String number = jedis.get(key);
            Thread.sleep(2);
            jedis.set(key, Long.toString(number == null ? 1 : Long.parseLong(number) + 1));
            unlock();
            Thread.sleep(ThreadLocalRandom.current().nextInt(10));
        }
    }

    private String answer(String[] words) throws InterruptedException {
        switch (words[0]) {
            case "lock":
                return lock(words[1], Long.parseLong(words[2])) ? "held" : "busy";
            case "extend":
                return extend(Long.parseLong(words[1])) ? "ok" : "lost";
            case "unlock":
                return unlock() ? "ok" : "lost";
            case "count":
                count(words[1], words[2], Integer.parseInt(words[3]));
                return "ok";
            case "set":
                return jedis.set(words[1], words[2]).toLowerCase();
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    public static void main(String[] args) throws Exception {
        try (Jedis jedis = new Jedis(args[0], Integer.parseInt(args[1]))) {
            jedis.ping();
            Peer peer = new Peer(jedis);
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
            System.out.println("ready");
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                System.out.println(peer.answer(line.split(" ")));
            }
        }
    }
}
