import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryNTimes;

/**
 * Clients of Curator that take and release, each as quickly as it can. A line of standard input is one
 * burst, SERVERS CLIENTS PATH NAMES MS, and is answered with a line: how many pairs of acquire and release
 * each client has ended within the time, separated by commas.
 */
public final class CuratorBurst {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            long[] shares = burst(words[0], Integer.parseInt(words[1]), words[2], Integer.parseInt(words[3]), Long.parseLong(words[4]));
            System.out.println(Arrays.stream(shares).mapToObj(Long::toString).collect(Collectors.joining(",")));
        }
        System.exit(0);
    }

    private static CuratorFramework open(String servers) throws InterruptedException {
        CuratorFramework client = CuratorFrameworkFactory.newClient(servers, 30_000, 10_000, new RetryNTimes(100, 50));
        client.start();
        if (!client.blockUntilConnected(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no connection to " + servers);
        }
        return client;
    }

    private static long[] burst(String servers, int clients, String path, int names, long ms) throws Exception {
        List<CuratorFramework> all = new ArrayList<>();
        for (int i = 0; i < clients; i++) {
            all.add(open(servers));
        }
        long[] shares = new long[clients];
        long[] end = new long[1];
        Throwable[] failed = new Throwable[1];
        CountDownLatch warm = new CountDownLatch(clients);
        CountDownLatch go = new CountDownLatch(1);
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < clients; i++) {
            int me = i;
            InterProcessMutex mutex = new InterProcessMutex(all.get(i), path + "/" + i % names);
            Thread thread = new Thread(() -> {
                try {
                    mutex.acquire(); // its parents are there
                    mutex.release();
                    warm.countDown();
                    go.await();
                    while (true) {
                        mutex.acquire();
                        mutex.release();
                        if (System.nanoTime() - end[0] > 0) {
                            return;
                        }
                        shares[me]++;
                    }
                } catch (Throwable e) {
                    failed[0] = e;
                    warm.countDown();
                }
            });
            thread.start();
            threads.add(thread);
        }
        warm.await();
        end[0] = System.nanoTime() + ms * 1_000_000;
        go.countDown();
        for (Thread thread : threads) {
            thread.join();
        }
        for (CuratorFramework client : all) {
            client.close();
        }
        if (failed[0] != null) {
            throw new IllegalStateException(failed[0]);
        }
        return shares;
    }
}
