/* A device that is busy when it is told so, and counts how often it was asked. */
#include <sched.h>
#include <stdint.h>

static int32_t busy, answer, capture, asked, looked;

#define LOAD(from) __atomic_load_n(&(from), __ATOMIC_ACQUIRE)

void set_busy(int32_t value) { __atomic_store_n(&busy, value, __ATOMIC_RELEASE); }
void set_answer(int32_t value) { __atomic_store_n(&answer, value, __ATOMIC_RELEASE); }
void set_capture(int32_t value) { __atomic_store_n(&capture, value, __ATOMIC_RELEASE); }
int32_t times_asked(void) { return LOAD(asked); }

int query(void *stream) {
    __atomic_add_fetch(&asked, 1, __ATOMIC_ACQ_REL);
    return stream != (void *)1 ? 1 : LOAD(answer) ? LOAD(answer) : LOAD(busy) ? 600 : 0;
}

int capturing(void *stream, int *status) {
    __atomic_add_fetch(&looked, 1, __ATOMIC_ACQ_REL);
    *status = stream == 0;
    return LOAD(capture);
}

/* Return when the device was looked at so many more times: what was set before has been seen then. */
void looked_at(int32_t more) {
    int32_t goal = LOAD(looked) + more;
    while (LOAD(looked) < goal) sched_yield();
}

/* A call that waits for the device, */
void wait_idle(void) {
    while (LOAD(busy)) sched_yield();
}

/* and one that waits for a stream that is not asked. */
static int32_t elsewhere = 1;
void end_elsewhere(void) { __atomic_store_n(&elsewhere, 0, __ATOMIC_RELEASE); }
void wait_elsewhere(void) {
    while (LOAD(elsewhere)) sched_yield();
}
