import java.nio.file.Files;
import java.nio.file.Path;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Adds to the number in a file under a lock, which main.go has too. Arguments: redis://HOST:PORT FILE TIMES */
public final class Counter {
    public static void main(String[] args) throws Exception {
        Config config = new Config();
        config.useSingleServer().setAddress(args[0]);
        RedissonClient client = Redisson.create(config);
        System.out.println("Java begins");
        RLock lock = client.getLock("examples/counter");
        for (int i = 0; i < Integer.parseInt(args[2]); i++) {
            lock.lock();
            try {
                add(Path.of(args[1]));
            } finally {
                lock.unlock();
            }
        }
        System.out.println("Java has added " + args[2]);
        client.shutdown();
    }

    static void add(Path file) throws Exception {
        int n = Files.exists(file) ? Integer.parseInt(Files.readString(file)) : 0;
        Thread.sleep(1);
        Files.writeString(file, Integer.toString(n + 1));
    }
}
