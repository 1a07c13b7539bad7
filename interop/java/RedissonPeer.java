import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.RedissonRedLock;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Services that use Redisson's locks, each with a client of its own.
 *
 * <pre>RedissonPeer</pre>
 */
public final class RedissonPeer extends Service {
    /** For how long permits are taken. Nothing renews them. */
    private static final long PERMIT_MS = 600_000;

    private final Map<String, RReadWriteLock> writing = new HashMap<>();
    private final Map<String, Long> tokens = new HashMap<>();
    private final List<RedissonClient> red = new ArrayList<>();
    private RedissonClient client;

    private RedissonPeer(String service) {
        super(service);
    }

    /** Opens a client of one server, of a cluster that one of its servers knows, or of what sentinels watch. */
    private static RedissonClient open(String url, long watchdog, long place) {
        Config config = new Config();
        config.setThreads(2);
        config.setNettyThreads(2);
        config.setLockWatchdogTimeout(watchdog);
        if (place > 0) {
            config.setFairLockWaitTimeout(place);
        }
        if (url.startsWith("redis+cluster://")) {
            config.useClusterServers()
                .addNodeAddress(url.replace("redis+cluster", "redis"))
                .setMasterConnectionMinimumIdleSize(1).setMasterConnectionPoolSize(4)
                .setSlaveConnectionMinimumIdleSize(1).setSlaveConnectionPoolSize(4)
                .setSubscriptionConnectionMinimumIdleSize(1);
        } else if (url.startsWith("redis+sentinel://")) {
            String[] hosts = url.substring("redis+sentinel://".length()).split("/");
            config.useSentinelServers()
                .setMasterName(hosts[1]).setCheckSentinelsList(false)
                .addSentinelAddress(
                    Arrays.stream(hosts[0].split(",")).map(h -> "redis://" + h).toArray(String[]::new))
                .setMasterConnectionMinimumIdleSize(1).setMasterConnectionPoolSize(4)
                .setSlaveConnectionMinimumIdleSize(1).setSlaveConnectionPoolSize(4)
                .setSubscriptionConnectionMinimumIdleSize(1);
        } else {
            config.useSingleServer()
                .setAddress(url)
                .setConnectionMinimumIdleSize(1).setConnectionPoolSize(4)
                .setSubscriptionConnectionMinimumIdleSize(1);
        }
        return Redisson.create(config);
    }

    private RLock lockOf(String kind, String name) {
        switch (kind) {
            case "mutex":
                return client.getLock(name);
            case "fair":
                return client.getFairLock(name);
            case "fenced":
                return client.getFencedLock(name);
            case "spin":
                return client.getSpinLock(name);
            case "multi":
                return client.getMultiLock(
                    Arrays.stream(name.split(",")).map(client::getLock).toArray(RLock[]::new));
            case "red":
                return new RedissonRedLock(red.stream().map(c -> c.getLock(name)).toArray(RLock[]::new));
            case "read":
                return client.getReadWriteLock(name).readLock();
            case "write":
                return client.getReadWriteLock(name).writeLock();
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    @Override
    protected Held take(String handle, String kind, String name, long ms) throws Exception {
        String[] parts = kind.split(":");
        switch (parts[0]) {
            case "fenced":
                return fenced(handle, name, ms);
            case "semaphore":
                return permits(parts, name, ms);
            case "counted":
                return counted(name, Integer.parseInt(parts[1]), Integer.parseInt(parts[2]), ms);
            default:
                break;
        }
        RLock lock = lockOf(kind, name);
        if (ms < 0) {
            lock.lock();
        } else if (ms == 0 ? !lock.tryLock() : !lock.tryLock(ms, TimeUnit.MILLISECONDS)) {
            return null;
        }
        if (kind.equals("write")) {
            writing.put(handle, client.getReadWriteLock(name));
        }
        return () -> {
            writing.remove(handle);
            lock.unlock();
        };
    }

    /** Waits for a lock, which ends by itself after the seconds. */
    private String lease(String handle, String kind, String name, long seconds) throws InterruptedException {
        RLock lock = lockOf(kind, name);
        if (kind.equals("fenced")) {
            tokens.put(handle, ((RFencedLock) lock).lockAndGetToken(seconds, TimeUnit.SECONDS));
        } else {
            lock.lockInterruptibly(seconds, TimeUnit.SECONDS);
        }
        held.put(handle, lock::unlock);
        return "held";
    }

    private Held fenced(String handle, String name, long ms) {
        RFencedLock lock = client.getFencedLock(name);
        Long token = ms < 0 ? lock.lockAndGetToken() : lock.tryLockAndGetToken(ms, -1, TimeUnit.MILLISECONDS);
        if (token == null) {
            return null;
        }
        tokens.put(handle, token);
        return lock::unlock;
    }

    /** Has so many threads wait for a lock, and end it. */
    private String waiters(String kind, String name, int threads) throws InterruptedException {
        List<Thread> all = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            all.add(new Thread(() -> {
                RLock lock = lockOf(kind, name);
                lock.lock();
                lock.unlock();
                event("done");
            }));
        }
        all.forEach(Thread::start);
        for (Thread thread : all) {
            thread.join();
        }
        return "ok";
    }

    /** Tries once, as the method without arguments says that it does. */
    private String tryToken(String handle, String name) {
        RFencedLock lock = client.getFencedLock(name);
        Long token = lock.tryLockAndGetToken();
        if (token == null) {
            return "busy";
        }
        held.put(handle, lock::unlock);
        return "held";
    }

    /** Of parts the second is the number of slots, the third that of permits, the fourth for how many ms they are taken. */
    private Held permits(String[] parts, String name, long ms) throws InterruptedException {
        int permits = Integer.parseInt(parts[2]);
        long lease = parts.length > 3 ? Long.parseLong(parts[3]) : PERMIT_MS;
        RPermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore(name);
        semaphore.trySetPermits(Integer.parseInt(parts[1]));
        List<String> ids = ms < 0
            ? semaphore.acquire(permits, lease, TimeUnit.MILLISECONDS)
            : semaphore.tryAcquire(permits, ms, lease, TimeUnit.MILLISECONDS);
        return ids.isEmpty() ? null : () -> semaphore.release(ids);
    }

    private Held counted(String name, int slots, int permits, long ms) throws InterruptedException {
        RSemaphore semaphore = client.getSemaphore(name);
        semaphore.trySetPermits(slots);
        if (ms < 0) {
            semaphore.acquire(permits);
        } else if (ms == 0 ? !semaphore.tryAcquire(permits) : !semaphore.tryAcquire(permits, ms, TimeUnit.MILLISECONDS)) {
            return null;
        }
        return () -> semaphore.release(permits);
    }

    @Override
    protected boolean writes(String handle) {
        return writing.containsKey(handle);
    }

    @Override
    protected String downgrade(String handle) {
        RReadWriteLock both = writing.remove(handle);
        both.readLock().lock();
        both.writeLock().unlock();
        held.put(handle, both.readLock()::unlock);
        return "ok";
    }

    private String latch(String what, String name, String n) throws InterruptedException {
        RCountDownLatch latch = client.getCountDownLatch(name);
        switch (what) {
            case "create":
                return latch.trySetCount(Long.parseLong(n)) ? "ok" : "busy";
            case "down":
                latch.countDown();
                return "ok";
            case "await":
                return latch.await(Long.parseLong(n), TimeUnit.MILLISECONDS) ? "ok" : "busy";
            default:
                return Long.toString(latch.getCount());
        }
    }

    @Override
    protected String answerOther(String[] words) throws Exception {
        switch (words[0]) {
            case "open":
                if (words[1].startsWith("redlock://")) {
                    for (String host : words[1].substring("redlock://".length()).split(",")) {
                        red.add(open("redis://" + host, Long.parseLong(words[2]), 0));
                    }
                    return "ok";
                }
                client = open(words[1], Long.parseLong(words[2]), words.length > 3 ? Long.parseLong(words[3]) : 0);
                return "ok";
            case "close":
                client.shutdown();
                red.forEach(RedissonClient::shutdown);
                return "ok";
            case "lease":
                return lease(words[1], words[2], words[3], Long.parseLong(words[4]));
            case "token":
                return Long.toString(tokens.get(words[1]));
            case "waiters":
                return waiters(words[1], words[2], Integer.parseInt(words[3]));
            case "trytoken":
                return tryToken(words[1], words[2]);
            case "countdown":
                return latch(words[1], words[2], words.length > 3 ? words[3] : "");
            case "force":
                return client.getLock(words[1]).forceUnlock() ? "ok" : "free";
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    public static void main(String[] args) throws Exception {
        serve(RedissonPeer::new);
    }
}
