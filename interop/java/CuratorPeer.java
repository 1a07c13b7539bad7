import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
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
 * Services that use Curator's recipes, each with a session of its own.
 *
 * <pre>CuratorPeer</pre>
 */
public final class CuratorPeer extends Service {
    private final Map<String, InterProcessReadWriteLock> writing = new HashMap<>();
    private CuratorFramework client;

    private CuratorPeer(String service) {
        super(service);
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

    @Override
    protected Held take(String handle, String kind, String name, long ms) throws Exception {
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
        return () -> {
            writing.remove(handle);
            lock.release();
        };
    }

    private Held lease(String name, int slots, int permits, long ms) throws Exception {
        InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, name, slots);
        Collection<Lease> leases =
            ms < 0 ? semaphore.acquire(permits) : semaphore.acquire(permits, ms, TimeUnit.MILLISECONDS);
        return leases == null ? null : () -> semaphore.returnAll(leases);
    }

    @Override
    protected boolean writes(String handle) {
        return writing.containsKey(handle);
    }

    @Override
    protected String downgrade(String handle) throws Exception {
        InterProcessReadWriteLock both = writing.remove(handle);
        both.readLock().acquire();
        both.writeLock().release();
        held.put(handle, both.readLock()::release);
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

    @Override
    protected String answerOther(String[] words) throws Exception {
        switch (words[0]) {
            case "open":
                client = open(words[1], Integer.parseInt(words[2]));
                client.getConnectionStateListenable().addListener((c, state) -> event(state.toString()));
                return "ok";
            case "close":
                client.close();
                return "ok";
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
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    public static void main(String[] args) throws Exception {
        serve(CuratorPeer::new);
    }
}
