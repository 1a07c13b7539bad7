import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.retry.RetryNTimes;

/**
 * Services that use Curator's recipes, each with a session and a thread of its own, and all in one
 * program, as a Java virtual machine is slow to start. See ../doc.go.
 *
 * <pre>CuratorPeer</pre>
 */
public final class CuratorPeer {
    /** A hold, or a candidacy, until it is ended. */
    private interface Held {
        void end() throws Exception;
    }

    private final String service;
    private final ExecutorService thread = Executors.newSingleThreadExecutor();
    private final Map<String, Held> held = new HashMap<>();
    private final Map<String, InterProcessReadWriteLock> writing = new HashMap<>();
    private CuratorFramework client;

    private CuratorPeer(String service) {
        this.service = service;
    }

    private static void say(String line) {
        synchronized (System.out) {
            System.out.println(line);
            System.out.flush();
        }
    }

    private void event(String event) {
        say(service + " ! " + event);
    }

    private static CuratorFramework open(String servers, int timeout) throws InterruptedException {
        CuratorFramework client = CuratorFrameworkFactory.builder()
            .connectString(servers)
            .sessionTimeoutMs(timeout)
            .connectionTimeoutMs(10_000)
            .retryPolicy(new RetryNTimes(100, 50))
            .build();
        client.start();
        if (!client.blockUntilConnected(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException("no connection to " + servers);
        }
        return client;
    }

    /** Takes a lock. Returns null if it is not to be had within the milliseconds; -1 waits as long as it takes. */
    private Held take(String handle, String kind, String name, long ms) throws Exception {
        String[] parts = kind.split(":");
        InterProcessLock lock;
        InterProcessReadWriteLock both = null;
        switch (parts[0]) {
            case "mutex":
                lock = new InterProcessMutex(client, name);
                break;
            case "revocable":
                InterProcessMutex mutex = new InterProcessMutex(client, name);
                mutex.makeRevocable(l -> event("revoked " + name));
                lock = mutex;
                break;
            case "single":
                lock = new InterProcessSemaphoreMutex(client, name);
                break;
            case "multi":
                lock = new InterProcessMultiLock(client, Arrays.asList(name.split(",")));
                break;
            case "read":
                lock = new InterProcessReadWriteLock(client, name).readLock();
                break;
            case "write":
                both = new InterProcessReadWriteLock(client, name);
                lock = both.writeLock();
                break;
            case "semaphore":
                return lease(name, Integer.parseInt(parts[1]), Integer.parseInt(parts[2]), ms);
            default:
                throw new IllegalArgumentException(kind);
        }
        if (ms < 0) {
            lock.acquire();
        } else if (!lock.acquire(ms, TimeUnit.MILLISECONDS)) {
            return null;
        }
        if (both != null) {
            writing.put(handle, both);
        }
        return lock::release;
    }

    private Held lease(String name, int slots, int permits, long ms) throws Exception {
        InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, name, slots);
        Collection<Lease> leases =
            ms < 0 ? semaphore.acquire(permits) : semaphore.acquire(permits, ms, TimeUnit.MILLISECONDS);
        return leases == null ? null : () -> semaphore.returnAll(leases);
    }

    private String lock(String handle, String kind, String name, long ms) throws Exception {
        Held taken = take(handle, kind, name, ms);
        if (taken == null) {
            return "busy";
        }
        held.put(handle, taken);
        return "held";
    }

    private String end(String handle) throws Exception {
        writing.remove(handle);
        held.remove(handle).end();
        return "ok";
    }

    private String downgrade(String handle) throws Exception {
        InterProcessReadWriteLock both = writing.remove(handle);
        both.readLock().acquire();
        both.writeLock().release();
        held.put(handle, both.readLock()::release);
        return "ok";
    }

    private static long number(Path file) throws IOException {
        return Long.parseLong(Files.readString(file));
    }

    private static void same(long want, long got) {
        if (want != got) {
            throw new IllegalStateException("the number was " + want + " and is " + got + " under the same lock");
        }
    }

    /** Increments the number in a file under a lock. A writer also looks at it again after its downgrade. */
    private String count(String kind, String name, Path file, int times) throws Exception {
        for (int i = 0; i < times; i++) {
            Held lock = take("count", kind, name, -1);
            long next = number(file) + 1;
            Files.writeString(file, Long.toString(next));
            if (writing.containsKey("count")) {
                held.put("count", lock);
                downgrade("count");
                Thread.yield();
                same(next, number(file));
                lock = held.remove("count");
            }
            lock.end();
        }
        return "ok";
    }

    /** Reads the number twice in each hold of a lock that others may share. */
    private String look(String kind, String name, Path file, int times) throws Exception {
        for (int i = 0; i < times; i++) {
            Held lock = take("look", kind, name, -1);
            long before = number(file);
            Thread.sleep(1);
            same(before, number(file));
            lock.end();
        }
        return "ok";
    }

    /** Has a file in a directory for each permit that it holds, and checks that there are never too many. */
    private String crowd(String kind, String name, Path directory, int times) throws Exception {
        String[] parts = kind.split(":");
        for (int i = 0; i < times; i++) {
            Held lock = take("crowd", kind, name, -1);
            List<Path> mine = new ArrayList<>();
            for (int p = 0; p < Integer.parseInt(parts[2]); p++) {
                mine.add(Files.createTempFile(directory, "permit", ""));
            }
            try (Stream<Path> all = Files.list(directory)) {
                long n = all.count();
                if (n > Integer.parseInt(parts[1])) {
                    throw new IllegalStateException(n + " permits of " + parts[1]);
                }
            }
            for (Path file : mine) {
                Files.delete(file);
            }
            lock.end();
        }
        return "ok";
    }

    private String revoke(String name) throws Exception {
        List<String> nodes = new ArrayList<>(new InterProcessMutex(client, name).getParticipantNodes());
        Revoker.attemptRevoke(client, nodes.get(0));
        return "ok";
    }

    private String latch(String handle, String name, String id) throws Exception {
        LeaderLatch latch = new LeaderLatch(client, name, id);
        latch.addListener(new LeaderLatchListener() {
            @Override
            public void isLeader() {
                event("leader " + handle);
            }

            @Override
            public void notLeader() {
                event("deposed " + handle);
            }
        });
        latch.start();
        held.put(handle, () -> latch.close(LeaderLatch.CloseMode.NOTIFY_LEADER));
        return "ok";
    }

    private String selector(String handle, String name, String id) {
        CountDownLatch done = new CountDownLatch(1);
        LeaderSelector selector = new LeaderSelector(client, name, new LeaderSelectorListenerAdapter() {
            @Override
            public void takeLeadership(CuratorFramework c) throws InterruptedException {
                event("leader " + handle);
                try {
                    done.await();
                } finally {
                    event("deposed " + handle);
                }
            }
        });
        selector.setId(id);
        selector.start();
        held.put(handle, () -> {
            done.countDown();
            selector.close();
        });
        return "ok";
    }

    /** Returns the ids of the leader and of all candidates in their order. */
    private String leader(String kind, String name) throws Exception {
        if (kind.equals("latch")) {
            LeaderLatch latch = new LeaderLatch(client, name);
            return latch.getLeader().getId() + " of "
                + latch.getParticipants().stream().map(p -> p.getId()).collect(Collectors.joining(","));
        }
        LeaderSelector selector = new LeaderSelector(client, name, new LeaderSelectorListenerAdapter() {
            @Override
            public void takeLeadership(CuratorFramework c) {
            }
        });
        return selector.getLeader().getId() + " of "
            + selector.getParticipants().stream().map(p -> p.getId()).collect(Collectors.joining(","));
    }

    private String participants(String name) throws Exception {
        return Integer.toString(new InterProcessMutex(client, name).getParticipantNodes().size());
    }

    private String data(String name) throws Exception {
        List<String> nodes = new ArrayList<>(new InterProcessMutex(client, name).getParticipantNodes());
        return new String(client.getData().forPath(nodes.get(0)), StandardCharsets.UTF_8);
    }

    /**
     * Takes and releases mutexes for some time, each of the clients as fast as it can, and returns how
     * often each did. Client i uses name i modulo names.
     */
    private static String burst(String servers, int clients, String name, int names, long ms) throws Exception {
        List<CuratorFramework> all = new ArrayList<>();
        for (int i = 0; i < clients; i++) {
            all.add(open(servers, 30_000));
        }
        long[] counts = new long[clients];
        Throwable[] failed = new Throwable[1];
        CountDownLatch go = new CountDownLatch(1);
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < clients; i++) {
            int me = i;
            InterProcessMutex mutex = new InterProcessMutex(all.get(i), name + "/" + i % names);
            Thread thread = new Thread(() -> {
                try {
                    go.await();
                    long end = System.nanoTime() + ms * 1_000_000;
                    while (System.nanoTime() < end) {
                        mutex.acquire();
                        counts[me]++;
                        mutex.release();
                    }
                } catch (Exception e) {
                    failed[0] = e;
                }
            });
            thread.start();
            threads.add(thread);
        }
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
        return Arrays.stream(counts).mapToObj(Long::toString).collect(Collectors.joining(","));
    }

    private String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "open":
                client = open(words[1], Integer.parseInt(words[2]));
                client.getConnectionStateListenable().addListener((c, state) -> event(state.toString()));
                return "ok";
            case "close":
                client.close();
                return "ok";
            case "lock":
                return lock(words[1], words[2], words[3], Long.parseLong(words[4]));
            case "end":
                return end(words[1]);
            case "downgrade":
                return downgrade(words[1]);
            case "count":
                return count(words[1], words[2], Path.of(words[3]), Integer.parseInt(words[4]));
            case "look":
                return look(words[1], words[2], Path.of(words[3]), Integer.parseInt(words[4]));
            case "crowd":
                return crowd(words[1], words[2], Path.of(words[3]), Integer.parseInt(words[4]));
            case "revoke":
                return revoke(words[1]);
            case "latch":
                return latch(words[1], words[2], words[3]);
            case "selector":
                return selector(words[1], words[2], words[3]);
            case "leader":
                return leader(words[1], words[2]);
            case "participants":
                return participants(words[1]);
            case "data":
                return data(words[1]);
            case "burst":
                return burst(words[1], Integer.parseInt(words[2]), words[3], Integer.parseInt(words[4]),
                    Long.parseLong(words[5]));
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private void obey(String[] words) {
        thread.execute(() -> {
            String answer;
            try {
                answer = answer(words);
            } catch (Throwable e) {
                answer = "error " + e.toString().replace('\n', ' ');
            }
            say(service + " = " + answer);
        });
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Map<String, CuratorPeer> services = new HashMap<>();
        say("ready");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            CuratorPeer peer = services.computeIfAbsent(words[0], CuratorPeer::new);
            peer.obey(Arrays.copyOfRange(words, 1, words.length));
        }
        System.exit(0);
    }
}
