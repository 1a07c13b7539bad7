package cli

const runHelp = `Run takes the lock NAME, runs CMD, and releases the lock when CMD has ended.

Waiting. The time of -w begins when run starts, and covers opening the store too: a
server that is too slow, or has too many connections at the moment, is tried again until
the time is over. If the store has said nothing by then, run asks for the lock once more
and waits for that answer, which says whether the lock is held. Without -w opening may take
15 s, and with -n there is one attempt. A server that refuses the connection is reported
at once; but if others of its deployment answer, one may take over from it, and with -w
run waits for that.

CMD is run directly, without a shell. It has run's input and outputs, and run ends with
its exit code. If CMD is not found, the lock is not taken. With -q, or with -E 0, run says
nothing if it does not get the lock: cron then sends no mail.

Signals. INT, TERM, HUP, QUIT, USR1, USR2, WINCH, CONT and TSTP are passed on to CMD
and its process group. While run still waits for the lock, each of the first four ends
the wait; a second one ends run without waiting for the store. On a terminal CMD has the
foreground, so Ctrl-C and Ctrl-Z go to CMD. After Ctrl-Z run stops too, and cannot renew
the lock: if the job is not continued before the lock runs out, CMD is killed.

Loss. If the lock cannot be renewed, CMD gets SIGTERM --grace before the lock runs
out, and SIGKILL when it does: CMD and all that it has started are gone before
anyone else can hold the lock. If an operator breaks the lock, CMD gets SIGKILL within
a second. For that Redis, etcd, ZooKeeper and PostgreSQL send run a message; in other
stores run reads the lock every half second while CMD runs. If the message or the answers
do not come, run learns of the break with the next renewal, after a third of the TTL at the
latest. Run then ends with exit code 76, whatever CMD returned.

Guard. CMD's parent is a guard process. If run itself is killed, with kill -9 too,
or stands still until the lock runs out, the guard kills CMD and, on Linux, all that
CMD has started, whatever group or session it is in. If the guard is killed, run
does the same. These processes survive: processes of other users, such as those that
CMD starts by sudo (put sudo before holdfast instead); if run and the guard are both
killed with kill -9, the processes that CMD has started, but not CMD; if both are stopped,
by a signal to each or by a debugger, all of CMD, beside the next holder, until the guard is
continued; on other systems than Linux, and without /proc, processes that have left CMD's
process group. ps and killall call the guard holdfast-guard. When run is killed, the next
holder may have the lock at once if the store notices that run is dead (files), else
after the TTL: --lock-delay gives the guard time.
Processes that CMD leaves running in the background when it ends go on without the lock.

--fallback, or HOLDFAST_FALLBACK, names a second store for when the first is down. Run uses it
when every hold in the first must have ended: one TTL (or --fallback-after) after the first
was last known to answer, or after run has found it down. So with -n, or with -w shorter than
that, the lock is not acquired then (exit code 75). Such a hold is degraded: it excludes only
those who use the second store too, run says so, and HOLDFAST_TOKEN is 0. All users of the
lock should have the same --fallback and --ttl. See docs/choose.md.

In a container run may be process 1: it passes signals on, reaps the processes that CMD
leaves behind, and needs neither root nor cgroups nor a writable root file system.

With --max-hold the lock is not renewed after that time: a CMD that hangs then loses it
in the same way, at most one TTL later.

If even a moment's overlap after a pause would do harm, give HOLDFAST_TOKEN to the
resource, and let the resource refuse lower tokens than the highest that it has seen.

CMD's environment has
    HOLDFAST_NAME       NAME
    HOLDFAST_TOKEN      the fencing token of the hold; it grows with each hold
    HOLDFAST_SEQUENCER  name, mode and token as one word
    HOLDFAST_HELD       this hold and those around it, as a JSON array of
                        {"store", "name", "mode", "token", "sequencer", …}
Suppose CMD runs holdfast run itself, with the same NAME and store. If the outer hold is
enough (its mode is the same or exclusive), and the store says that it is still held, the
inner run takes no lock, stays in the outer process group and becomes its CMD.

Exit codes:
        CMD's own, or 128+n if signal n killed it
   64   wrong usage: a flag, a name, a URL, or something that the store cannot do
   69   the store cannot be reached or does not work
   70   CMD or its guard could not be started
   75   the lock was not acquired (-E changes it)
   76   the lock was lost or broken, or --max-hold was over, while CMD ran
  126   CMD cannot be executed
  127   CMD was not found
  128+n signal n ended the wait for the lock`

const runExamples = `  # in crontab: skip this time if the last run is not over, without a word
  holdfast run -n -E 0 nightly-backup -- /usr/local/bin/backup

  # on several hosts, once per tick although their clocks differ
  holdfast run -n --min-hold 30s report -- /usr/local/bin/report

  # stop a backup that hangs, so that the next one can run
  holdfast run -n --max-hold 6h nightly-backup -- /usr/local/bin/backup

  # wait for at most ten minutes
  holdfast run -w 10m deploy/shop -- ./deploy.sh

  # at most three at a time
  holdfast run --slots 3 encode -- ffmpeg -i in.mkv out.mp4`
