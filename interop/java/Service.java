import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.Function;
import java.util.stream.Stream;

/**
 * What a service does, whatever library it has its locks from. All services of a program are in one Java
 * virtual machine, which is slow to start. Each has a thread of its own. See ../doc.go.
 */
abstract class Service {
    /** A hold, or a candidacy, until it is ended. */
    interface Held {
        void end() throws Exception;
    }

    private final String service;
    private final ExecutorService thread = Executors.newSingleThreadExecutor();
    protected final Map<String, Held> held = new HashMap<>();

    Service(String service) {
        this.service = service;
    }

    /** Takes a lock. Returns null if it is not to be had within the milliseconds; -1 waits as long as it takes. */
    protected abstract Held take(String handle, String kind, String name, long ms) throws Exception;

    /** Makes the writer of a handle a reader. */
    protected abstract String downgrade(String handle) throws Exception;

    /** Reports whether the lock of a handle is one to write, which can be downgraded. */
    protected abstract boolean writes(String handle);

    /** Carries out a command of the library. */
    protected abstract String answerOther(String[] words) throws Exception;

    private static void say(String line) {
        synchronized (System.out) {
            System.out.println(line);
            System.out.flush();
        }
    }

    protected void event(String event) {
        say(service + " ! " + event);
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
        held.remove(handle).end();
        return "ok";
    }

    /** Says now and then how often something was done, as a sign that it goes on. */
    private void progress(int times) {
        if (times % 100 == 0) {
            event("at " + times);
        }
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
            // Over the old number, which is no longer: ext4 writes to the disk what has been truncated.
            Files.writeString(file, Long.toString(next), StandardOpenOption.WRITE);
            if (writes("count")) {
                held.put("count", lock);
                downgrade("count");
                Thread.yield();
                same(next, number(file));
                lock = held.remove("count");
            }
            lock.end();
            progress(i + 1);
        }
        return "ok";
    }

    /** Takes and ends a lock, and returns how many nanoseconds it took. */
    private String burst(String kind, String name, int times) throws Exception {
        long begin = System.nanoTime();
        for (int i = 0; i < times; i++) {
            take("burst", kind, name, -1).end();
        }
        return Long.toString(System.nanoTime() - begin);
    }

    /** Reads the number twice in each hold of a lock that others may share. */
    private String look(String kind, String name, Path file, int times) throws Exception {
        for (int i = 0; i < times; i++) {
            Held lock = take("look", kind, name, -1);
            long before = number(file);
            Thread.sleep(1);
            same(before, number(file));
            lock.end();
            progress(i + 1);
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
            progress(i + 1);
        }
        return "ok";
    }

    private String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "lock":
                return lock(words[1], words[2], words[3], Long.parseLong(words[4]));
            case "end":
                return end(words[1]);
            case "downgrade":
                return downgrade(words[1]);
            case "count":
                return count(words[1], words[2], Path.of(words[3]), Integer.parseInt(words[4]));
            case "burst":
                return burst(words[1], words[2], Integer.parseInt(words[3]));
            case "look":
                return look(words[1], words[2], Path.of(words[3]), Integer.parseInt(words[4]));
            case "crowd":
                return crowd(words[1], words[2], Path.of(words[3]), Integer.parseInt(words[4]));
            default:
                return answerOther(words);
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

    /** Reads commands until there are no more. */
    static void serve(Function<String, Service> open) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Map<String, Service> services = new HashMap<>();
        say("ready");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            services.computeIfAbsent(words[0], open).obey(Arrays.copyOfRange(words, 1, words.length));
        }
        System.exit(0);
    }
}
