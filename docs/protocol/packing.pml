/*
 * A packing plan under the write protocol, as a Promela model: model.pml has the protocol of a node pass, this file how a
 * plan is carried out, interrupted, resumed and ended. checking.md says how to run both.
 *
 * One hour, and a node n1. P is pending and fits there only after A has shrunk and B0 or B1 has been evicted; the
 * replacement of an evicted pod runs on another node. A plan shrinks A, waits until the shrink is actual, evicts one pod,
 * and waits until kube-scheduler has bound P. Meanwhile a node pass would give the free unit of n1 to G. One eviction is
 * allowed in the hour. Two replicas contend for the lead. tests/protocol replays runs of this model on the simulated
 * cluster with cruise's own plan executor and writer.
 */

#ifndef TERMS
#define TERMS 2          /* how often a replica begins to lead */
#endif
#ifndef PLANS
#define PLANS 2          /* packing plans */
#endif
#ifndef GROWS
#define GROWS 1          /* node passes */
#endif
#ifndef TRIES
#define TRIES 4          /* steps of a plan that write; a plan takes one a second until it is too old */
#endif
#ifndef WAITS
#define WAITS 0          /* steps that only wait: they change nothing */
#endif
#ifndef FAULTS
#define FAULTS 2         /* how many things go wrong */
#endif

#define CAP   13         /* allocatable */
#define REST  1          /* a pod that does not change */
#define NEED  5          /* what P requests */
#define SMALL 3          /* what the plan leaves A */
#define NONE  2          /* nobody holds the Lease */
#define A     0          /* as in model.pml; pod 2 is the one that does not change */
#define G     1
#define B0    3
#define B1    4

/* ---- the cluster ---- */
byte spec[2], actual[2]; /* what a pod requests, and what its kubelet has put in force */
bool infeasible;         /* the kubelet of A said that it will never put its resize in force */
byte gone[2];            /* B0, B1: 0 runs, 1 is terminating, 2 is gone and its replacement runs on another node */
bool bound;              /* kube-scheduler has bound P */
byte faults;

/* ---- the database ---- */
byte open[5];            /* an intent: 0 none, else 1 + the replica that stored it */
bool left[5];            /* nobody waits for its outcome any more */
byte row[5];             /* the audit: 0 nothing, 1 ended without an answer, 2 done; of resizes only 1 is kept */
#define IN_PROGRESS 1
#define FINISHED    2
#define DROPPED     3
byte phase;              /* of the latest plan */
bool begun;              /* its first step is stored */
bool late;               /* it is older than a pass interval */
byte victim;             /* 0 for B0, 1 for B1 */
byte plans, grows, tries, waits;

/* ---- the Lease ---- */
byte holder = NONE;
bool leads[2];
byte terms, term[2];

/* ---- a replica ---- */
#define IDLE     0
#define PLANNED  1       /* decided; open intents are looked at next */
#define ALLOWED  2       /* the intent is stored next */
#define BEGUN    3       /* the intent is stored */
#define WAITING  4       /* the write is sent */
#define ANSWERED 5       /* the answer is there, and not recorded yet */
byte pc[2], pod[2];      /* pod: whose write this is */
bool carries[2];         /* it is a step of the plan, not a node pass */
bool reserved[2];        /* node passes leave the nodes and pods of the plan alone */
bool resumed[2];         /* in this term it has looked for a plan that another process left */
bool changed_[10], seen_bound[2];

/* ---- writes under way: 0 and 1 are waited for by their replica, 2 and 3 are late ones ---- */
#define FREE      0
#define TRAVELS   1
#define DONE      2
#define CONFLICT  3
byte at[4], what[4], of_term[4];
bool stale[4];           /* the pod has changed since it was read: its resourceVersion is another */
bool without_p[4];       /* it was decided before P was bound */

/* The laws: false where one is broken. */
hidden byte law_actual, law_reserved, law_fence, law_row, law_room, law_once, law_budget, law_end;
byte evicted;
hidden byte i, k, size, choice;  /* within a step */

#define MOST(x, y)  ((x) > (y) -> (x) : (y))
#define COUNTED(q)  ((q) == A && infeasible -> actual[q] : MOST(spec[q], actual[q]))
#define COUNT (COUNTED(A) + COUNTED(G) + REST + 2 * (gone[0] != 2) + 2 * (gone[1] != 2) + NEED * bound)
#define IS_LATE_FOR(q) ((at[2] == TRAVELS && what[2] == q) || (at[3] == TRAVELS && what[3] == q))
#define UNDER_WAY(q, p) (open[q] == 1 + p && !left[q])
#define IS_ACTUAL   (spec[A] == SMALL && actual[A] == SMALL)
#define IS_EVICTING (begun && gone[victim] != 0)
/* What n1 counts at the end of a plan that evicts one of B0 and B1, without P. */
#define AT_END(b)   (SMALL + COUNTED(G) + REST + 2 * (gone[1 - (b)] != 2))

#ifdef FORGOTTEN_BUDGET
#define IS_SPENT(e) (row[e] == 2)
#else
#define IS_SPENT(e) (row[e] || open[e])
#endif

/* Print what can be seen from outside, as model.pml does, and the plan. */
inline print_state() {
    printf("STATE %d%d1 %d%d1 %d%d %d%d0%d%d %d%d %d%d\n", spec[A], spec[G], actual[A], actual[G], gone[0], gone[1],
        open[A] != 0, open[G] != 0, open[B0] != 0, open[B1] != 0, open[B0] || row[B0], open[B1] || row[B1], phase, bound)
}

/* A pod has another resourceVersion: what was read before is refused. */
inline touch(q) {
    i = 0;
    do
    :: i < 4 -> if :: at[i] == TRAVELS && what[i] == q -> stale[i] = true :: else fi; i++
    :: else -> break
    od;
    skip
}

inline free_slot(s) { at[s] = FREE; what[s] = 0; of_term[s] = 0; stale[s] = 0; without_p[s] = 0 }

inline close(q) { open[q] = 0; left[q] = 0 }

/* A replica is done with a step or a pass, or leaves it because the world does not answer or another one leads. */
inline rest(p) {
    if :: UNDER_WAY(pod[p], p) -> close(pod[p]) :: else fi;
    pc[p] = IDLE; pod[p] = 0; carries[p] = false; seen_bound[p] = false;
    i = 0;
    do :: i < 5 -> changed_[5 * p + i] = false; i++ :: else -> break od;
    skip
}

inline leave(p) { rest(p); printf("EV abort %d\n", p) }

/* The outcome of a plan's step is stored with the plan, unless it is a resize that was done: only the leader may. */
inline end_step(p, is_stored) {
    if :: carries[p] && is_stored && !leads[p] -> leave(p) :: else -> rest(p); printf("EV end %d\n", p) fi
}

inline begin_work(p, q) { pod[p] = q; pc[p] = PLANNED; seen_bound[p] = bound }

/*
 * What the next step of a plan is: it is finished, it is dropped, A shrinks, a pod is evicted, or it waits. The rest of the
 * plan is verified before its first action; once it evicts, only the free capacity for P is looked at.
 */
#define ENDS     (bound && begun && gone[victim] == 2)
#define IS_VALID (!bound && !gone[victim] && AT_END(victim) + NEED <= CAP)
#define IS_FULL  (!bound && COUNTED(A) + COUNTED(G) + REST + 2 * (gone[1 - victim] != 2) + NEED > CAP)
#define SHRINKS  (!IS_EVICTING && !infeasible && spec[A] != SMALL)
#ifdef EAGER_EVICTION
#define EVICTS   (!IS_EVICTING && !infeasible && spec[A] == SMALL && begun)
#else
/* From the first step on the webhook needs a moment for the hint where the replacement should run. */
#define EVICTS   (!IS_EVICTING && !infeasible && IS_ACTUAL && begun)
#endif
#define DROPS    (late || (!begun && gone[victim] == 2) || (IS_EVICTING && IS_FULL) || (!IS_EVICTING && infeasible) || \
    ((SHRINKS || EVICTS) && !IS_VALID))
#define STEP     (ENDS -> 0 : (DROPS -> 1 : (SHRINKS -> 2 : (EVICTS -> 3 : 4))))
#define MAY_STEP (STEP < 2 || (STEP < 4 && tries < TRIES) || (STEP == 4 && (!begun || waits < WAITS)))

/* Open intents of others, and own ones without an answer, get an outcome from the cluster as it is. */
inline reconcile(p) {
    k = 0;
    do
    :: k < 5 ->
        if
        :: open[k] && !UNDER_WAY(k, p) -> row[k] = (k >= 3 && gone[k - 3] -> 2 : 1); close(k)
        :: else
        fi;
        k++
    :: else -> break
    od;
    skip
}

/* Whether the write that was decided is allowed now; a node pass leaves the plan's nodes and pods alone. */
inline go_on(p) {
    if
    :: !carries[p] && reserved[p] -> rest(p); printf("EV end %d\n", p)
    :: pod[p] >= 3 && (IS_SPENT(B0) || IS_SPENT(B1)) -> end_step(p, true)
    :: else -> pc[p] = ALLOWED
    fi
}

/* The last look before a write is sent. */
inline send_or_skip(p) {
    k = pod[p];
    if
    :: changed_[5 * p + k] -> printf("EV skip %d %d\n", p, k); end_step(p, true)
    :: !changed_[5 * p + k] && !leads[p] ->
        /* The client refuses it as if nobody had answered. */
        left[k] = true; row[k] = MOST(row[k], 1); leave(p)
    :: else ->
        /* Nobody is evicted for a plan before its shrinks are actual. */
        law_actual = k < 3 || IS_ACTUAL;
        assert(law_actual);
        /* No node pass takes what a plan in progress counts on. */
        law_reserved = carries[p] || phase != IN_PROGRESS;
        assert(law_reserved);
        at[p] = TRAVELS; what[p] = k; of_term[p] = term[p]; without_p[p] = !seen_bound[p];
        pc[p] = WAITING; printf("EV send %d %d\n", p, k)
    fi
}

/* What is under way goes on without anybody who waits for it. */
inline let_travel(p) {
    if
    :: at[p] == TRAVELS ->
        at[2 + p] = TRAVELS; what[2 + p] = what[p]; of_term[2 + p] = of_term[p]; stale[2 + p] = stale[p];
        without_p[2 + p] = without_p[p]
    :: else
    fi;
    free_slot(p)
}

#ifdef BUSY
/* Random runs would have most faults before anything happens. */
#define MAY_FAIL (faults < FAULTS && faults < 2 * plans && (pc[0] > ALLOWED || pc[1] > ALLOWED || IS_EVICTING))
#define MAY_REFUSE (faults < FAULTS && terms > 1)
#else
#define MAY_FAIL (faults < FAULTS)
#define MAY_REFUSE MAY_FAIL
#endif

proctype Replica(bool p) {
end:
    do
    /* A former leader gives up three seconds after it lost the lead, which no other has for five. */
    :: d_step { holder == NONE && !leads[p] && pc[p] == IDLE && terms < TERMS && (terms || !p) && pc[1 - p] < WAITING ->
        holder = p; leads[p] = true; terms++; term[p] = terms; resumed[p] = false;
        printf("EV acquire %d\n", p); print_state() }
    /* A packing pass: a plan is made where it helps and the hour's budget allows it. */
    :: d_step { leads[p] && pc[p] == IDLE && phase != IN_PROGRESS && plans < PLANS && !bound && !infeasible &&
        spec[A] == actual[A] && COUNT + NEED > CAP && !IS_SPENT(B0) && !IS_SPENT(B1) && (!gone[0] || !gone[1]) &&
        AT_END(gone[0] != 0) + NEED <= CAP ->
        plans++; phase = IN_PROGRESS; victim = (gone[0] != 0); begun = false; late = false; tries = 0; waits = 0;
        reserved[p] = true; printf("EV pack %d %d\n", p, B0 + victim); print_state() }
    :: d_step { leads[p] && pc[p] == IDLE && phase == IN_PROGRESS && MAY_STEP ->
        reserved[p] = true; choice = STEP; printf("EV step %d %d\n", p, choice);
        if
        :: choice < 2 -> phase = FINISHED + choice; reserved[p] = false
        :: choice == 2 || choice == 3 -> tries++; carries[p] = true; begin_work(p, (choice == 2 -> A : B0 + victim))
        :: choice == 4 && begun -> waits++
        :: else
        fi;
        begun = true; print_state() }
    /* A node pass. The first of a leader looks for a plan that another process left. */
    :: d_step { leads[p] && pc[p] == IDLE && grows < GROWS && spec[G] == 2 && actual[G] == 2 && COUNT < CAP ->
        grows++;
#ifndef FORGOTTEN_RESERVATION
        if :: !resumed[p] -> reserved[p] = (phase == IN_PROGRESS) :: else fi;
#endif
        resumed[p] = true; begin_work(p, G); printf("EV grow %d\n", p); print_state() }
    /* Only the leader compares. */
    :: d_step { pc[p] == PLANNED && leads[p] -> reconcile(p); printf("EV reconcile %d\n", p); go_on(p); print_state() }
    :: d_step { pc[p] == PLANNED && !leads[p] -> printf("EV reconcile %d\n", p); leave(p); print_state() }
    :: d_step { pc[p] == ALLOWED && leads[p] ->
        open[pod[p]] = 1 + p; left[pod[p]] = false; if :: pod[p] < 3 -> row[pod[p]] = row[pod[p]] && IS_LATE_FOR(pod[p])
        :: else fi;
        printf("EV begin %d %d ok\n", p, pod[p]); pc[p] = BEGUN; print_state() }
    :: d_step { pc[p] == ALLOWED && !leads[p] -> leave(p); print_state() }
    :: d_step { pc[p] == ALLOWED && leads[p] && MAY_FAIL -> faults++;
        printf("EV begin %d %d fails\n", p, pod[p]); rest(p); print_state() }
    :: d_step { pc[p] == ALLOWED && leads[p] && MAY_FAIL -> faults++;
        printf("EV begin %d %d unseen\n", p, pod[p]);
        open[pod[p]] = 1 + p; left[pod[p]] = true; rest(p); print_state() }
    :: d_step { pc[p] == BEGUN && at[p] == FREE -> send_or_skip(p); print_state() }
    :: d_step { pc[p] == WAITING && (at[p] == DONE || at[p] == CONFLICT) ->
        pc[p] = ANSWERED; printf("EV answer %d %d ", p, pod[p]);
        if :: at[p] == DONE -> printf("done\n") :: else -> printf("conflict\n") fi; print_state() }
    :: d_step { pc[p] == WAITING && (at[p] != TRAVELS || at[2 + p] == FREE) && MAY_FAIL ->
        /* The answer is lost; the write may be under way still. */
        faults++; k = pod[p]; row[k] = MOST(row[k], 1); left[k] = true; let_travel(p);
        printf("EV lost %d %d\n", p, k); rest(p); print_state() }
    :: d_step { pc[p] == ANSWERED ->
        k = pod[p]; choice = at[p];
        if :: choice == DONE -> row[k] = (k < 3 -> row[k] && IS_LATE_FOR(k) : 2) :: else fi;
        close(k); free_slot(p); printf("EV record %d %d\n", p, k); end_step(p, (k >= 3 || choice != DONE)); print_state() }
    od
}

/* The API server does a write, or refuses it because its pod has changed. */
inline land(s) {
    k = what[s];
    if
    :: stale[s] || (k >= 3 && gone[k - 3] == 2) -> at[s] = CONFLICT; printf("EV land %d %d conflict\n", s, k)
    :: else ->
        /* Nothing of a former leader is done to a pod that has changed since it was read. */
        law_fence = !(stale[s] && of_term[s] < terms);
        assert(law_fence);
        /* Every write has its row. */
        law_row = open[k] || row[k];
        assert(law_row);
        at[s] = DONE;
        if
        :: k == A -> spec[A] = SMALL
        :: k == G ->
            spec[G] = 3;
            /* By a write of ours the requests on a node never pass its allocatable. */
            law_room = COUNT - (bound && without_p[s] -> NEED : 0) <= CAP;
            assert(law_room)
        :: else ->
            /* Nobody is evicted twice. */
            law_once = gone[k - 3] == 0;
            assert(law_once);
            gone[k - 3] = 1; evicted++;
            /* No more pods are evicted than the budget allows. */
            law_budget = evicted <= 1;
            assert(law_budget)
        fi;
        touch(k); changed_[k] = true; changed_[5 + k] = true;
        printf("EV land %d %d done\n", s, k)
    fi;
    if :: s > 1 -> free_slot(s) :: else fi
}

/* What is under way arrives, or is dropped. */
proctype Network(bool p) {
end:
    do
    :: d_step { at[p] == TRAVELS -> land(p); print_state() }
    :: d_step { at[2 + p] == TRAVELS -> land(2 + p); print_state() }
    :: d_step { at[2 + p] == TRAVELS -> printf("EV drop %d %d\n", 2 + p, what[2 + p]); free_slot(2 + p); print_state() }
    od
}

/* Kubelets put resizes in force and end evicted pods; kube-scheduler binds P where it fits. */
proctype Cluster() {
end:
    do
    :: d_step { gone[0] == 1 -> gone[0] = 2; touch(B0); printf("EV gone 0\n"); print_state() }
    :: d_step { gone[1] == 1 -> gone[1] = 2; touch(B1); printf("EV gone 1\n"); print_state() }
    :: d_step { actual[A] != spec[A] && !infeasible -> actual[A] = spec[A]; touch(A); printf("EV actual 0\n");
        print_state() }
    :: d_step { actual[A] != spec[A] && !infeasible && MAY_REFUSE -> faults++; infeasible = true; touch(A);
        printf("EV infeasible 0\n"); print_state() }
    :: d_step { actual[G] != spec[G] && COUNT <= CAP -> actual[G] = spec[G]; touch(G); printf("EV actual 1\n");
        print_state() }
    :: d_step { !bound && COUNT + NEED <= CAP -> bound = true; printf("EV bind\n"); print_state() }
    od
}

inline crash(p) {
    let_travel(p);
    k = 0;
    do :: k < 5 -> if :: open[k] == 1 + p -> left[k] = true :: else fi; k++ :: else -> break od;
    reserved[p] = false; resumed[p] = false; rest(p); leads[p] = false; holder = NONE
}

proctype Faults() {
end:
    do
    :: d_step { holder != NONE && terms < TERMS && MAY_FAIL -> faults++;
        printf("EV expire %d\n", holder); leads[holder] = false; holder = NONE; print_state() }
    :: d_step { holder != NONE && terms < TERMS && MAY_FAIL && (at[holder] != TRAVELS || at[2 + holder] == FREE) ->
        faults++; k = holder; printf("EV crash %d\n", k); i = k;
        if :: i == 0 -> crash(0) :: else -> crash(1) fi; print_state() }
    od
}

#ifdef BUSY
#define MAY_AGE (waits == WAITS || tries == TRIES)
#else
#define MAY_AGE true
#endif

/* A pass interval passes, in which every write arrives or is dropped. */
proctype Clock() {
end:
    do
    :: d_step { phase == IN_PROGRESS && !late && !pc[0] && !pc[1] && at[2] == FREE && at[3] == FREE && MAY_AGE ->
        late = true; printf("EV age\n"); print_state() }
    od
}

/* Where nothing can happen any more, the plan has ended, and no node pass of the leader heeds what it had reserved. */
proctype Rest() {
end:
    atomic { timeout ->
        law_end = !pc[0] && !pc[1] &&
            (holder == NONE || (phase != IN_PROGRESS && !(resumed[holder] && reserved[holder])));
        assert(law_end) }
}

#ifdef LIVE
/* In runs of any length, if each replica, its network, kubelets and the clock go on. */
ltl plan_ends { [] (phase != IN_PROGRESS || <> (phase != IN_PROGRESS)) }
#endif

init {
    atomic {
        spec[A] = 5; actual[A] = 5; spec[G] = 2; actual[G] = 2;
        run Replica(0); run Replica(1); run Network(0); run Network(1); run Cluster(); run Faults(); run Clock(); run Rest()
    }
}
