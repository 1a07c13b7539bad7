import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * A service that charges an order under a lock, until it reads a line. A service in Go has the same lock:
 * see ../redisson_example_test.go.
 *
 * <pre>RedissonOrders redis://HOST:PORT</pre>
 */
public final class RedissonOrders {
    public static void main(String[] args) throws Exception {
        Config config = new Config();
        config.useSingleServer().setAddress(args[0]);
        RedissonClient client = Redisson.create(config);
        RLock lock = client.getLock("orders/42");
        lock.lock();
        try {
            System.out.println("Java charges the order");
            System.in.read();
        } finally {
            lock.unlock();
            client.shutdown();
        }
    }
}
