import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * A service that charges an order under a lock, until it reads a line. A service in Go has the same lock:
 * see ../zk_example_test.go.
 *
 * <pre>Orders HOST:PORT,HOST:PORT</pre>
 */
public final class Orders {
    public static void main(String[] args) throws Exception {
        try (CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], new ExponentialBackoffRetry(100, 10))) {
            client.start();
            InterProcessMutex mutex = new InterProcessMutex(client, "/billing/orders/42");
            mutex.acquire();
            try {
                System.out.println("Java charges the order");
                System.in.read();
            } finally {
                mutex.release();
            }
        }
    }
}
