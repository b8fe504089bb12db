/* Asks a CUDA stream again and again whether it has work left, without Python.

   The interpreter's lock is free when the program hands work over, and held while it does something else. A thread that
   needed the lock to ask would find the device busy in the one and idle in the other, however long either takes.

   The driver has a lock, too, which whoever hands work over takes. A question that meets it may cost the program some
   ten microseconds: the more of them do, the fewer are asked. */
#include <sched.h>
#include <stdint.h>
#include <time.h>

#define LOAD(from) __atomic_load_n(&(from), __ATOMIC_ACQUIRE)
#define STORE(to, value) __atomic_store_n(&(to), value, __ATOMIC_RELEASE)

enum { READY = 0, NOT_READY = 600, OTHERS_CAPTURE = 906 };

struct watch { /* poller.py has the same */
    int (*query)(void *);           /* cudaStreamQuery */
    int (*capturing)(void *, int *); /* cudaStreamIsCapturing */
    void *stream;
    int64_t pause;    /* ns between two readings, on average, where the driver's lock is free, */
    int64_t longest;  /* and where it never is */
    int64_t read_at;  /* ns of the monotonic clock: the last reading */
    int64_t state;    /* moment of the last change * 2 + busy; 0: nothing is known */
    uint64_t written; /* changes so far */
    uint64_t room;    /* changes kept: a power of 2 */
    int64_t *changes; /* moment * 2 + busy of each */
    int32_t code;     /* CUDA's answer where it was neither: the watch has ended */
    int32_t over;     /* set to end it */
    int32_t gate;     /* 1: a question is being asked, or none may be */
};

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void sleep_ns(int64_t ns) {
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    if (ns > 0) nanosleep(&t, 0);
}

void hold(struct watch *w) {
    while (__atomic_exchange_n(&w->gate, 1, __ATOMIC_ACQUIRE)) sched_yield();
}

void let_go(struct watch *w) { STORE(w->gate, 0); }

/* The legacy stream is never captured itself. Where another stream that waits for it is, a query would end that
   capture, and this question does not. */
static int ask(struct watch *w, int64_t *took) {
    int status, code;
    hold(w);
    *took = -now_ns();
    code = w->capturing(w->stream, &status);
    if (code == READY) code = w->query(w->stream);
    *took += now_ns();
    let_go(w);
    return code;
}

/* Until it is told to end, or CUDA has an error: changes of the state, each in the middle of two readings. */
void watch_device(struct watch *w) {
    uint64_t random = 88172645463325252ull;
    int64_t quickest = 1000000000, met = 0; /* met: of the last 64 questions those that met the lock, in 1024ths */
    while (!LOAD(w->over)) {
        int64_t took, pause, at, state = w->state;
        int code = ask(w, &took);
        at = now_ns();
        if (code == READY || code == NOT_READY) {
            int busy = code == NOT_READY;
            if (!state || (state & 1) != busy) {
                int64_t change = (state ? w->read_at + (at - w->read_at) / 2 : at) * 2 + busy;
                w->changes[w->written & (w->room - 1)] = change;
                STORE(w->state, change);
                STORE(w->written, w->written + 1);
            }
            STORE(w->read_at, at);
        } else if (code != OTHERS_CAPTURE) {
            STORE(w->code, code);
            return;
        }
        if (took < quickest) quickest = took;
        met += ((took > 3000 && took > 2 * quickest ? 1024 : 0) - met) / 64;
        pause = w->pause + (w->longest - w->pause) * met / 1024;
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        /* between a half and one and a half: equal pauses could fall into step with the program */
        sleep_ns(pause / 2 + (int64_t)(random % (uint64_t)(pause + 1)));
    }
}

/* Sleep until readings found the device idle for `idle` ns, or until `until`, or the end; the moment of waking, ns. */
int64_t sleep_until(struct watch *w, int64_t until, int64_t idle) {
    int64_t step = idle / 4 < 1000000 ? 1000000 : idle / 4;
    for (;;) {
        int64_t at = now_ns(), state = LOAD(w->state), left = until - at;
        if (left <= 0 || LOAD(w->over) || LOAD(w->code)) return at;
        if (state && !(state & 1) && LOAD(w->read_at) - state / 2 >= idle) return at;
        sleep_ns(left < step ? left : step);
    }
}
