/*
 * The write protocol of cruise as a Promela model. README.md says what the protocol promises, checking.md how to run this.
 *
 * One node and one hour. Sizes are units of memory. A is to shrink, G to grow into what A and the evictions free (unless
 * its kubelet finds that infeasible), O may be killed for its memory, B0 and B1 may be evicted, and one eviction is
 * allowed in the hour. Two replicas contend for the lead. What a node pass decides here is what cruise's own pass decides
 * in the same state: tests/protocol replays runs of this model on the simulated cluster with the real passes, and
 * compares every step.
 */

#ifndef TERMS
#define TERMS 2          /* how often a replica begins to lead */
#endif
#ifndef PLANS
#define PLANS 3          /* node passes and reactions to kills, in all terms */
#endif
#ifndef FAULTS
#define FAULTS 3         /* how many things go wrong */
#endif

#ifndef CAP
#define CAP   13         /* allocatable */
#endif
#define GOAL  7          /* what G needs */
#define NONE  2          /* nobody holds the Lease */
#define A     0          /* pods that are resized */
#define G     1
#define O     2
#define B0    3          /* pods that may be evicted */
#define B1    4

/* ---- the cluster ---- */
byte spec[3], actual[3]; /* what a pod requests, and what its kubelet has put in force */
bool deferred[3];
bool infeasible;         /* the kubelet of G said that it will never put its resize in force */
byte gone[2];            /* B0, B1: 0 runs, 1 is terminating, 2 is gone and its replacement runs on another node */
bool guest;              /* somebody else's pod of one unit was bound to the node */
bool risen;              /* the usage of A has risen from 2 to 3, and a usage pass has shown it */
bool killed;             /* O was killed for its memory: it needs 2 */
bool reacted;            /* the kill was answered */
bool paused;
byte faults;             /* so many things went wrong */
#ifndef ODD
#define ODD 0            /* what happens besides: 1 a rise, 2 a kill, 3 a guest, 0 any one of them */
#endif
bool odd;

/* ---- the database ---- */
byte open[5];            /* an intent: 0 none, else 1 + the replica that stored it */
bool left[5];            /* nobody waits for its outcome any more */
byte was[5];             /* the size before, as the intent states it */
byte wants[5], takes[5]; /* the size that it asks for, and by how much it grows */
byte late[3];            /* the largest size that a resize without an answer asked for */
byte refused;            /* the size of G that was withdrawn as infeasible: no size as large is asked for again */
byte row[5];             /* the audit: 0 nothing, 1 ended without an answer, 2 done; of resizes only 1 is kept */
bool restored;           /* an older copy took its place */
bool behind;             /* its epoch is before the one that replicas know, and the loss is not on record yet */
bool lost, incomplete;   /* the loss is on record: of evictions for an hour, of usage until it was read again */

/* ---- the Lease ---- */
byte holder = NONE;
bool leads[2];
byte terms, term[2];

/* ---- a replica: the plan that it applies, and what it remembers ---- */
#define IDLE    0
#define PLANNED 1        /* decided; open intents are looked at next */
#define ALLOWED 2        /* the next write is within budget and room; its intent is stored next */
#define BEGUN   3        /* the intent is stored */
#define WAITING 4        /* the write is sent */
#define ANSWERED 5       /* the answer is there, and not recorded yet */
byte pc[2], step[2], plans;
byte todo[2];            /* steps: 0 A without growth, 1 G withdrawn, 2 B0, 3 B1, 4 A with growth, 5 G, 6 O */
byte seen_spec[6], seen_counted[6], seen_count[2], goal[6], growth[6];
bool seen_guest[2], changed_[10], old[2], sticky[2], reaction[2], cooling[2];
bool knows_open[2];      /* an own answer was lost, or former leaders may have left something, and no pass has looked since */
bool knows_lost[2], knows_incomplete[2], hears_lost[2];
byte grown[6], grown_by[6], grown_age[6], before_to[2], before_by[2], before_age[2];

/* ---- writes under way: 0 and 1 are waited for by their replica, 2 and 3 are late ones ---- */
#define FREE      0
#define TRAVELS   1
#define DONE      2
#define CONFLICT  3
byte at[4], what[4], to[4], of_term[4];
bool stale[4];           /* the pod has changed since it was read: its resourceVersion is another */
bool aged[4];            /* sent over a minute ago */
bool unrecorded[4];      /* the database has lost its intent */
bool without_guest[4];

/* The laws: false where one is broken. */
hidden byte law_pause, law_refused, law_fresh, law_fence, law_former, law_row, law_room, law_once, law_budget, law_end;
byte evicted, last_term;
bool forgiven;           /* a grow is known neither to the database, which went back, nor to the replica that leads */
hidden byte i, k, n, m, room, size;  /* within a step */

#define MOST(x, y)  ((x) > (y) -> (x) : (y))
#define COUNTED(q)  ((q) == G && infeasible -> actual[q] : MOST(spec[q], actual[q]))
#define COUNT (COUNTED(A) + COUNTED(G) + COUNTED(O) + 2 * (gone[0] != 2) + 2 * (gone[1] != 2) + guest)
#define KIND(s)     ((s) == 0 || (s) == 4 -> A : ((s) == 1 || (s) == 5 -> G : ((s) == 6 -> O : (s) + 1)))
#define IS_TODO(p)  ((todo[p] >> step[p]) & 1)
#define IS_LATE_FOR(q) ((at[2] == TRAVELS && what[2] == q) || (at[3] == TRAVELS && what[3] == q))
#define UNDER_WAY(q, p) (open[q] == 1 + p && !left[q])

/* Print what can be seen from outside, for the replay: sizes, evictions, open intents, budget used. */
inline print_state() {
    printf("STATE %d%d%d %d%d%d %d%d %d%d%d%d%d %d%d\n", spec[A], spec[G], spec[O], actual[A], actual[G], actual[O],
        gone[0], gone[1], open[A] != 0, open[G] != 0, open[O] != 0, open[B0] != 0, open[B1] != 0,
        open[B0] || row[B0], open[B1] || row[B1])
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

inline free_slot(s) { at[s] = FREE; what[s] = 0; to[s] = 0; of_term[s] = 0; stale[s] = 0; aged[s] = 0; unrecorded[s] = 0;
    without_guest[s] = 0 }

inline close(q) { open[q] = 0; left[q] = 0; was[q] = 0; wants[q] = 0; takes[q] = 0 }

#ifdef FORGOTTEN_REFUSAL
#define IS_REFUSED(wanted) false
#else
#define IS_REFUSED(wanted) (refused && (wanted) >= refused)
#endif

/* What a node pass decides: A shrinks, pods are evicted as far as that makes the others fit, and G and O share the rest. */
inline decide(p) {
    n = (gone[0] == 0) + (gone[1] == 0);
    room = CAP - 2 * (gone[0] == 1) - 2 * (gone[1] == 1) - guest;
    goal[3 * p + A] = 2 + risen; goal[3 * p + O] = 1 + killed;
    size = goal[3 * p + A] + GOAL + goal[3 * p + O] + 2 * n;
    m = 0;
    do :: size > room + 2 * m && m <= n -> m++ :: else -> break od;
    if :: m > n -> m = 0 :: else fi;
    if :: spec[A] == goal[3 * p + A] -> size = COUNTED(A) :: else -> size = goal[3 * p + A] fi;
    room = room - size - 2 * (n - m);
    size = room - MOST(goal[3 * p + O], spec[O]);
    goal[3 * p + G] = (size > 200 -> spec[G] : MOST(spec[G], (size < GOAL -> size : GOAL)));
    size = room - COUNTED(G);
    goal[3 * p + O] = (size > 200 -> spec[O] : MOST(spec[O], (size < goal[3 * p + O] -> size : goal[3 * p + O])));
    i = 0;
    do
    :: i < 3 -> growth[3 * p + i] = (goal[3 * p + i] > COUNTED(i) -> goal[3 * p + i] - COUNTED(i) : 0); i++
    :: else -> break
    od;
    todo[p] = 0;
    if :: goal[3 * p + A] != spec[A] -> todo[p] = (growth[3 * p + A] -> 16 : 1) :: else fi;
    if :: m && gone[0] == 0 -> todo[p] = todo[p] | 4; m-- :: else fi;
    if :: m && gone[1] == 0 -> todo[p] = todo[p] | 8; m-- :: else fi;
    /* What its kubelet has put off is left to it; what it never will do is taken back. */
    if
    :: infeasible ->
        growth[3 * p + G] = 0; goal[3 * p + G] = actual[G];
        if :: spec[G] != actual[G] -> todo[p] = todo[p] | 2 :: else fi
    :: !infeasible && goal[3 * p + G] != spec[G] && !deferred[G] && !IS_REFUSED(goal[3 * p + G]) ->
        todo[p] = todo[p] | 32
    :: else
    fi;
    if :: goal[3 * p + O] != spec[O] && !cooling[p] -> todo[p] = todo[p] | 64 :: else fi
}

/* Only a kill is answered: O grows where there is room. */
inline decide_reaction(p) {
    goal[3 * p + O] = 2;
    growth[3 * p + O] = (COUNTED(O) < 2 -> 1 : 0);
    todo[p] = (spec[O] == 1 && COUNT + growth[3 * p + O] <= CAP -> 64 : 0)
}

inline look(p) {
    seen_count[p] = COUNT; seen_guest[p] = guest; old[p] = false; sticky[p] = paused;
    i = 0;
    do
    :: i < 3 ->
        seen_spec[3 * p + i] = spec[i]; seen_counted[3 * p + i] = COUNTED(i);
        /* A grow is remembered for 90 seconds, or until a snapshot shows it. */
        if :: grown_age[3 * p + i] > 1 || (grown[3 * p + i] && grown[3 * p + i] == spec[i]) ->
            grown[3 * p + i] = 0; grown_by[3 * p + i] = 0; grown_age[3 * p + i] = 0
        :: else fi;
        i++
    :: else -> break
    od;
    i = 0;
    do :: i < 5 -> changed_[5 * p + i] = false; i++ :: else -> break od;
#ifndef LIVE
    plans++;
#endif
    step[p] = 0; pc[p] = PLANNED
}

inline forget_plan(p) {
    pc[p] = IDLE; step[p] = 0; todo[p] = 0; hears_lost[p] = 0; seen_count[p] = 0; seen_guest[p] = 0; old[p] = 0;
    sticky[p] = 0; reaction[p] = 0; before_to[p] = 0; before_by[p] = 0; before_age[p] = 0;
    i = 0;
    do
    :: i < 3 -> seen_spec[3 * p + i] = 0; seen_counted[3 * p + i] = 0; goal[3 * p + i] = 0; growth[3 * p + i] = 0; i++
    :: else -> break
    od;
    i = 0;
    do :: i < 5 -> changed_[5 * p + i] = false; i++ :: else -> break od;
    skip
}

/* What was recorded and never sent is closed at the end of a plan. */
inline close_unsent(p) {
    k = 0;
    do :: k < 5 -> if :: UNDER_WAY(k, p) -> close(k) :: else fi; k++ :: else -> break od;
    skip
}

#define GROWS(p, q, bit) ((todo[p] & (bit)) && growth[3 * p + (q)])
#define IS_GROWING(p) (GROWS(p, A, 16) || GROWS(p, G, 32) || GROWS(p, O, 64))

/*
 * What a resize may take when it arrives late is kept for it: what it asks for above what its pod counts now. Where a plan
 * has nothing to grow, pods are not counted.
 */
inline reserve(p, q, wanted, decided) {
    size = (!IS_GROWING(p) -> decided : (wanted > seen_counted[3 * p + q] -> wanted - seen_counted[3 * p + q] : 0));
    if
    :: size && (!grown[3 * p + q] || (IS_GROWING(p) && grown[3 * p + q] == seen_spec[3 * p + q]) ||
        size > grown_by[3 * p + q]) ->
        grown[3 * p + q] = wanted; grown_by[3 * p + q] = size; grown_age[3 * p + q] = 0
    :: else
    fi
}

/*
 * Open intents of others, and own ones without an answer, get an outcome from the cluster as it is. What has none may
 * arrive yet, whoever found that out.
 */
inline reconcile(p) {
    knows_open[p] = false; k = 0;
    do
    :: k < 5 ->
        if
        :: open[k] && !UNDER_WAY(k, p) ->
            if
            :: k < 3 -> row[k] = 1; if :: spec[k] == was[k] -> late[k] = MOST(late[k], wants[k]) :: else fi;
#ifndef LOST_ANSWER
                /* It may arrive yet, or the snapshot may be from before it arrived. */
                reserve(p, k, wants[k], takes[k])
#endif
            :: else -> row[k] = (gone[k - 3] -> 2 : 1)
            fi;
            close(k)
        :: else
        fi;
        k++
    :: else -> break
    od;
#ifndef LOST_ANSWER
#ifndef FORGOTTEN_ROOM
    k = 0;
    do
    :: k < 3 ->
        if
        :: late[k] && IS_GROWING(p) -> reserve(p, k, late[k], 0)
        :: else
        fi;
        k++
    :: else -> break
    od;
#endif
#endif
    skip
}

/* The room that the snapshot left, less the grows that it does not show. */
inline find_room(p, q) {
    room = CAP - seen_count[p];
    i = 0;
    do
    :: i < 3 ->
        if :: i != q && grown[3 * p + i] && grown[3 * p + i] != seen_spec[3 * p + i] ->
            room = (room > grown_by[3 * p + i] -> room - grown_by[3 * p + i] : 0)
        :: else fi;
        i++
    :: else -> break
    od;
    skip
}

#ifdef FORGOTTEN_BUDGET
#define IS_SPENT(e) (row[e] == 2)
#else
#define IS_SPENT(e) (row[e] || open[e])
#endif

#ifdef OLDER_DATABASE
#define IS_BEHIND false
#else
#define IS_BEHIND behind
#endif

/* Store the intent of a step; those of the resizes that come next are stored with it, up to the next evictions. */
inline store_intents(p) {
    i = step[p];
    do
    :: i < 7 ->
        if :: (todo[p] >> i) & 1 ->
            k = KIND(i);
            open[k] = 1 + p; left[k] = false;
            if
            :: k < 3 ->
                row[k] = row[k] && IS_LATE_FOR(k);
                was[k] = seen_spec[3 * p + k]; wants[k] = goal[3 * p + k]; takes[k] = growth[3 * p + k]
            :: else
            fi
        :: else fi;
        if :: step[p] == 2 || step[p] == 3 || (step[p] < 2 && i == 1) -> break :: else -> i++ fi
    :: else -> break
    od;
    skip
}

/* Leave the plan because the world does not answer, or because another replica leads. */
inline leave(p) { close_unsent(p); forget_plan(p) }

inline skip_step(p) { k = KIND(step[p]); if :: UNDER_WAY(k, p) -> close(k) :: else fi; step[p]++ }

#ifdef TWO_LEADERS
#define BOTH true
#define MAY_WRITE(p) true
#define IS_FENCED(s) false
#else
#define BOTH false
#define MAY_WRITE(p) leads[p]
#define IS_FENCED(s) stale[s]
#endif

#ifdef FORMER_READER     /* a former leader compares intents */
#define IS_READER(p) true
#else
#define IS_READER(p) MAY_WRITE(p)
#endif

#ifdef POLICY            /* the ValidatingAdmissionPolicy of README.md */
#define IS_ADMITTED(s) (holder != NONE && of_term[s] == terms)
#else
#define IS_ADMITTED(s) true
#endif

#ifdef DEAF              /* a sixth bug: the pause is not heeded */
#define HEEDS_PAUSE(p) false
#else
#define HEEDS_PAUSE(p) sticky[p]
#endif

#ifdef STALE
#define IS_LATE(p) false
#define USE_GREW(p) false
#else
#define IS_LATE(p) old[p]
#define USE_GREW(p) (step[p] == 0 && goal[3 * p + A] == 2 && risen)
#endif

/* Go on to the next step that pause, budget and room allow, or to the end. */
inline go_on(p) {
    pc[p] = PLANNED;
    do
    :: step[p] == 7 ->
        /* Only the leader may store that a kill was answered, and not in an older database. */
        if
        :: reaction[p] && (!MAY_WRITE(p) || IS_BEHIND) -> printf("EV abort %d\n", p)
        :: else -> if :: reaction[p] -> reacted = true :: else fi; printf("EV end %d\n", p)
        fi;
        close_unsent(p); forget_plan(p); break
    :: step[p] < 7 && !IS_TODO(p) -> step[p]++
    :: step[p] < 7 && IS_TODO(p) ->
        k = KIND(step[p]); room = 99; size = (k < 3 -> growth[3 * p + k] : 1);
        if
        :: k < 3 && size -> find_room(p, k)
        :: k >= 3 && (hears_lost[p] || IS_SPENT(B0) || IS_SPENT(B1)) -> room = 0
        :: k == A && knows_incomplete[p] && goal[3 * p + A] < seen_spec[3 * p + A] -> size = 100
        :: else
        fi;
        if
        :: HEEDS_PAUSE(p) || room < size || (UNDER_WAY(k, p) && IS_LATE(p)) -> skip_step(p)
        :: else -> pc[p] = (UNDER_WAY(k, p) -> BEGUN : ALLOWED); break
        fi
    od;
    skip
}

/* The last look before a write is sent. */
inline send_or_skip(p) {
    k = KIND(step[p]);
    if
    :: HEEDS_PAUSE(p) || IS_LATE(p) || changed_[5 * p + k] || USE_GREW(p) || (k >= 3 && knows_lost[p]) ->
        printf("EV skip %d %d\n", p, k);
        if
        :: reaction[p] && !HEEDS_PAUSE(p) && !IS_LATE(p) ->
            /* The kill is answered later, when the pod is as it was decided on. */
            skip_step(p); leave(p); printf("EV abort %d\n", p)
        :: else -> skip_step(p); hears_lost[p] = knows_lost[p]; go_on(p)
        fi
    :: else ->
        if
        :: !MAY_WRITE(p) ->
            /* The client refuses it as if nobody had answered. */
            if :: UNDER_WAY(k, p) -> left[k] = true; knows_open[p] = true :: else fi;
            row[k] = MOST(row[k], 1);
            if :: k < 3 -> late[k] = MOST(late[k], goal[3 * p + k]) :: else fi;
            leave(p); printf("EV abort %d\n", p)
        :: else ->
            /* A paused cruise sends nothing. */
            law_pause = !sticky[p];
            assert(law_pause);
            /* Nothing is sent by an old snapshot, and no shrink below the usage that is known. */
            law_fresh = !old[p] && !(k == A && goal[3 * p + A] == 2 && risen);
            assert(law_fresh);
            /* No size is asked for again that the kubelet will never put in force. */
            law_refused = !(step[p] == 5 && refused && goal[3 * p + G] >= refused);
            assert(law_refused);
            at[p] = TRAVELS; what[p] = k; of_term[p] = term[p]; without_guest[p] = !seen_guest[p];
            unrecorded[p] = restored && !open[k];
            if
            :: k < 3 ->
                to[p] = goal[3 * p + k];
                if
                :: growth[3 * p + k] || step[p] == 1 ->
                    before_to[p] = grown[3 * p + k]; before_by[p] = grown_by[3 * p + k];
                    before_age[p] = grown_age[3 * p + k];
                    grown[3 * p + k] = to[p]; grown_by[3 * p + k] = growth[3 * p + k]; grown_age[3 * p + k] = 0
                :: else
                fi
            :: else
            fi;
            pc[p] = WAITING; printf("EV send %d %d\n", p, k)
        fi
    fi
}

/* A refused write gives its room back. */
inline take_refusal(p) {
    k = what[p];
    if
    :: k < 3 && (growth[3 * p + k] || step[p] == 1) ->
        grown[3 * p + k] = before_to[p]; grown_by[3 * p + k] = before_by[p]; grown_age[3 * p + k] = before_age[p]
    :: else
    fi
}

/* What is under way goes on without anybody who waits for it. */
inline let_travel(p) {
    if
    :: at[p] == TRAVELS ->
        at[2 + p] = TRAVELS; what[2 + p] = what[p]; to[2 + p] = to[p]; of_term[2 + p] = of_term[p];
        stale[2 + p] = stale[p]; aged[2 + p] = aged[p]; unrecorded[2 + p] = unrecorded[p];
        without_guest[2 + p] = without_guest[p]
    :: else
    fi;
    free_slot(p)
}

proctype Replica(bool p) {
end:
    do
    /* A former leader gives up three seconds after it lost the lead, which no other has for five. */
    :: d_step { holder == NONE && !leads[p] && pc[p] == IDLE && terms < TERMS && (terms || !p) &&
        (BOTH || pc[1 - p] < WAITING) ->
        holder = p; leads[p] = true; terms++; term[p] = terms; knows_open[p] = true;
        if :: !IS_BEHIND -> knows_lost[p] = lost; knows_incomplete[p] = incomplete :: else fi;
        printf("EV acquire %d\n", p); print_state() }
    :: d_step { leads[p] && pc[p] == IDLE && plans < PLANS ->
        decide(p); look(p);
        printf("EV plan %d %d %d %d %d\n", p, todo[p], goal[3 * p], goal[3 * p + 1], goal[3 * p + 2]);
        /* Without steps only the first plan of a leader looks, and the first after a lost answer. */
        if :: !todo[p] && !knows_open[p] -> forget_plan(p) :: else fi; print_state() }
    :: d_step { leads[p] && pc[p] == IDLE && plans < PLANS && killed && !reacted ->
        reaction[p] = true; decide_reaction(p); look(p); printf("EV react %d %d\n", p, todo[p]);
        if :: !todo[p] -> reacted = !IS_BEHIND; forget_plan(p) :: else fi; print_state() }
    /* A usage pass finds the database at an earlier state, and a later one has read everything again. */
    :: d_step { leads[p] && IS_BEHIND ->
        behind = false; lost = true; incomplete = true; knows_lost[p] = true; knows_incomplete[p] = true;
        printf("EV notice %d\n", p); print_state() }
    :: d_step { leads[p] && knows_incomplete[p] && !IS_BEHIND ->
        incomplete = false; knows_incomplete[p] = false; printf("EV regain %d\n", p); print_state() }
    /* Only the leader compares: a former one would keep from the next what it learns. */
    :: d_step { pc[p] == PLANNED && IS_READER(p) -> reconcile(p); printf("EV reconcile %d\n", p);
        hears_lost[p] = knows_lost[p]; go_on(p); print_state() }
    :: d_step { pc[p] == PLANNED && !IS_READER(p) ->
        printf("EV reconcile %d\n", p); leave(p); printf("EV abort %d\n", p); print_state() }
    :: d_step { pc[p] == ALLOWED && MAY_WRITE(p) && IS_BEHIND ->
        printf("EV begin %d %d behind\n", p, KIND(step[p])); leave(p); print_state() }
    :: d_step { pc[p] == ALLOWED && MAY_WRITE(p) && !IS_BEHIND ->
        store_intents(p); printf("EV begin %d %d ok\n", p, KIND(step[p]));
        /* Before a pod is read again; a pod that only shrinks is not. */
        if :: step[p] && (HEEDS_PAUSE(p) || IS_LATE(p)) ->
            skip_step(p); hears_lost[p] = knows_lost[p]; go_on(p)
        :: else -> pc[p] = BEGUN
        fi;
        print_state() }
    :: d_step { pc[p] == ALLOWED && !MAY_WRITE(p) -> leave(p); printf("EV abort %d\n", p); print_state() }
    :: d_step { pc[p] == ALLOWED && MAY_WRITE(p) && !IS_BEHIND && faults < FAULTS -> faults++;
        printf("EV begin %d %d fails\n", p, KIND(step[p])); leave(p); print_state() }
    :: d_step { pc[p] == ALLOWED && MAY_WRITE(p) && !IS_BEHIND && faults < FAULTS -> faults++;
        printf("EV begin %d %d unseen\n", p, KIND(step[p]));
        store_intents(p); i = 0;
        do :: i < 5 -> if :: open[i] == 1 + p -> left[i] = true :: else fi; i++ :: else -> break od;
        leave(p); print_state() }
    :: d_step { pc[p] == BEGUN && at[p] == FREE -> send_or_skip(p); print_state() }
    :: d_step { pc[p] == WAITING && at[p] == DONE ->
        if :: step[p] == 1 -> refused = seen_spec[3 * p + G] :: else fi;
        hears_lost[p] = knows_lost[p]; pc[p] = ANSWERED; printf("EV answer %d %d done\n", p, what[p]); print_state() }
    :: d_step { pc[p] == WAITING && at[p] == CONFLICT ->
        take_refusal(p); hears_lost[p] = knows_lost[p]; pc[p] = ANSWERED;
        printf("EV answer %d %d conflict\n", p, what[p]); print_state() }
    :: d_step { pc[p] == WAITING && (at[p] != TRAVELS || at[2 + p] == FREE) && faults < FAULTS ->
        /* The answer is lost; the write may be under way still. */
        faults++; k = what[p]; row[k] = MOST(row[k], 1);
        if :: UNDER_WAY(k, p) -> left[k] = true; knows_open[p] = true :: else fi;
        if :: k < 3 -> late[k] = MOST(late[k], to[p]) :: else fi;
#ifdef LOST_ANSWER
        if :: k < 3 -> grown[3 * p + k] = 0; grown_by[3 * p + k] = 0; grown_age[3 * p + k] = 0 :: else fi;
#endif
        let_travel(p); printf("EV lost %d %d\n", p, k); leave(p); print_state() }
    :: d_step { pc[p] == ANSWERED ->
        k = what[p];
        if
        :: at[p] == DONE -> row[k] = (k < 3 -> row[k] && IS_LATE_FOR(k) : 2); cooling[p] = cooling[p] || reaction[p]
        :: else
        fi;
        close(k); free_slot(p); printf("EV record %d %d\n", p, k); step[p]++;
        /* An eviction ends with its record; what follows a resize goes on while that is recorded. */
        if :: k >= 3 -> hears_lost[p] = knows_lost[p] :: else fi;
        go_on(p); print_state() }
    od
}

/* The API server does a write, or refuses it because its pod has changed. */
inline land(s) {
    k = what[s];
    if
    :: IS_FENCED(s) || !IS_ADMITTED(s) || (k >= 3 && gone[k - 3] == 2) ->
        at[s] = CONFLICT; printf("EV land %d %d conflict\n", s, k)
    :: else ->
        /* Neither the database nor the leader knows of it. */
        if :: s > 1 && unrecorded[s] && of_term[s] != terms -> forgiven = true :: else fi;
        /* Nothing of a former leader is done to a pod that has changed since it was read. */
        law_fence = !(stale[s] && of_term[s] < terms);
        assert(law_fence);
#ifdef POLICY
        /* Nothing of a former leader is done after the first write of the next. */
        law_former = of_term[s] >= last_term;
        assert(law_former);
#endif
        /* Every write has its row. */
        law_row = unrecorded[s] || open[k] || row[k];
        assert(law_row);
        last_term = MOST(last_term, of_term[s]);
        at[s] = DONE;
        if
        :: k < 3 ->
            n = spec[k]; spec[k] = to[s];
            /* By a write of ours the requests on a node never pass its allocatable. */
            law_room = spec[k] <= n || forgiven || COUNT - (guest && without_guest[s]) <= CAP;
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

/* What is under way arrives, or is dropped; within 90 seconds either is known. */
proctype Network(bool p) {
end:
    do
    :: d_step { at[p] == TRAVELS -> land(p); print_state() }
    :: d_step { at[2 + p] == TRAVELS -> land(2 + p); print_state() }
    :: d_step { at[2 + p] == TRAVELS -> printf("EV drop %d %d\n", 2 + p, what[2 + p]); free_slot(2 + p); print_state() }
    od
}

#ifdef BUSY
#define MAY_REFUSE (!refused || faults < FAULTS)
#else
#define MAY_REFUSE (faults < FAULTS)
#endif

/* A kubelet looks at a resize: it is put in force, or waits for room. */
#define TAKEN (actual[A] + actual[G] + actual[O] + 2 * (gone[0] != 2) + 2 * (gone[1] != 2) + guest)
#define FITS(q) (TAKEN - actual[q] + spec[q] <= CAP)

inline put_in_force(q) {
    if
    :: FITS(q) -> actual[q] = spec[q]; deferred[q] = false; printf("EV actual %d\n", q)
    :: else -> deferred[q] = true; printf("EV deferred %d\n", q)
    fi;
    touch(q)
}

/* For reasons of its own a kubelet puts off what would fit. */
inline put_off(q) { deferred[q] = true; touch(q); printf("EV deferred %d\n", q) }

inline end_pod(q) { gone[q] = 2; touch(3 + q); printf("EV gone %d\n", q); print_state() }

proctype Kubelet() {
end:
    do
    :: d_step { gone[0] == 1 -> end_pod(0); print_state() }
    :: d_step { gone[1] == 1 -> end_pod(1); print_state() }
    :: d_step { actual[A] != spec[A] && (!deferred[A] || FITS(A)) -> put_in_force(A); print_state() }
    :: d_step { actual[G] != spec[G] && !infeasible && (!deferred[G] || FITS(G)) -> put_in_force(G); print_state() }
    :: d_step { actual[G] < spec[G] && !deferred[G] && !infeasible && faults < FAULTS -> faults++; put_off(G); print_state() }
    :: d_step { actual[G] < spec[G] && !deferred[G] && !infeasible && MAY_REFUSE -> faults = faults + (faults < FAULTS);
        infeasible = true; touch(G); printf("EV infeasible %d\n", G); print_state() }
    :: d_step { infeasible && actual[G] == spec[G] -> infeasible = false; touch(G); printf("EV actual %d\n", G);
        print_state() }
    :: d_step { actual[O] != spec[O] && (!deferred[O] || FITS(O)) -> put_in_force(O); print_state() }
    od
}

inline crash(p) {
    let_travel(p);
    k = 0;
    do :: k < 5 -> if :: open[k] == 1 + p -> left[k] = true :: else fi; k++ :: else -> break od;
    k = 0;
    do
    :: k < 3 -> grown[3 * p + k] = 0; grown_by[3 * p + k] = 0; grown_age[3 * p + k] = 0; k++
    :: else -> break
    od;
    cooling[p] = false; knows_open[p] = false; knows_lost[p] = false; knows_incomplete[p] = false; forget_plan(p); leads[p] = false; holder = NONE
}

/* A minute passes: decisions are too old, and what was sent before the minute before it has arrived or never will. */
inline pass_a_minute() {
    k = 0;
    do :: k < 4 -> if :: at[k] == TRAVELS -> aged[k] = true :: else fi; k++ :: else -> break od;
    k = 0;
    do :: k < 6 -> if :: grown[k] && grown_age[k] < 2 -> grown_age[k]++ :: else fi; k++ :: else -> break od;
    old[0] = pc[0] != IDLE; old[1] = pc[1] != IDLE
}

/* What the leader remembers of a write, the database may lose. */
#define IS_KNOWN(q, p) (q >= 3 || wants[q] <= was[q] || grown[3 * p + q] == wants[q])

inline restore_older() {
    restored = true; behind = true; k = 0;
    do
    :: k < 5 ->
        if
        :: open[k] && (holder == NONE || !IS_KNOWN(k, holder)) -> forgiven = true
        :: else
        fi;
        k++
    :: else -> break
    od;
    k = 0;
    do :: k < 5 -> close(k); row[k] = 0; k++ :: else -> break od;
    k = 0;
    do
    :: k < 4 ->
        if
        :: k > 1 && at[k] == TRAVELS && what[k] < 3 && (holder == NONE || grown[3 * holder + what[k]] != to[k]) ->
            forgiven = true
        :: else
        fi;
        k++
    :: else -> break
    od;
    k = 0;
    do :: k < 3 -> late[k] = 0; k++ :: else -> break od;
    refused = 0;
    k = 0;
    do :: k < 4 -> if :: at[k] == TRAVELS -> unrecorded[k] = true :: else fi; k++ :: else -> break od;
    skip
}

#define IS_GROWN (grown[0] || grown[1] || grown[2] || grown[3] || grown[4] || grown[5])
#define SOMETHING_AGES (pc[0] || pc[1] || at[2] || at[3] || IS_GROWN)
#define IS_AGED(s) (at[s] == TRAVELS && aged[s])

#ifdef BUSY
/* Random runs would have most faults before anything happens. */
#define MAY_FAIL (faults < FAULTS && 2 * faults < plans && (pc[0] || pc[1]))
#else
#define MAY_FAIL (faults < FAULTS)
#endif

/* What goes wrong, a bounded number of times. */
proctype Faults() {
end:
    do
    :: d_step { holder != NONE && terms < TERMS && MAY_FAIL -> faults++;
        printf("EV expire %d\n", holder); leads[holder] = false; holder = NONE; print_state() }
    :: d_step { holder != NONE && terms < TERMS && MAY_FAIL && (at[holder] != TRAVELS || at[2 + holder] == FREE) ->
        faults++; m = holder; printf("EV crash %d\n", m); crash(m); print_state() }
    :: d_step { MAY_FAIL && SOMETHING_AGES && !IS_AGED(0) && !IS_AGED(1) && !IS_AGED(2) && !IS_AGED(3) ->
        faults++; pass_a_minute(); printf("EV tick\n"); print_state() }
    :: d_step { !paused && MAY_FAIL ->
        faults++; paused = true; sticky[0] = pc[0] != IDLE; sticky[1] = pc[1] != IDLE; printf("EV pause\n"); print_state() }
    :: d_step { paused && MAY_FAIL -> faults++; paused = false; printf("EV resume\n"); print_state() }
    :: d_step { !restored && MAY_FAIL -> faults++; restore_older(); printf("EV restore\n"); print_state() }
#if ODD == 0 || ODD == 1
    :: d_step { !odd -> odd = true; risen = true; printf("EV rise\n"); print_state() }
#endif
#if ODD == 0 || ODD == 2
    :: d_step { !odd -> odd = true; killed = true; touch(O); printf("EV kill\n"); print_state() }
#endif
#if ODD == 0 || ODD == 3
    :: d_step { !odd && COUNT < CAP -> odd = true; guest = true; printf("EV guest\n"); print_state() }
#endif
    od
}

/* Where nothing can happen any more, no plan is under way. */
proctype Rest() {
end:
    atomic { timeout -> law_end = (pc[0] == IDLE && pc[1] == IDLE); assert(law_end) }
}

#ifdef LIVE
/* In runs of any length, if each replica, its network and the kubelets go on. */
ltl plans_end { [] ((pc[0] == IDLE || <> (pc[0] == IDLE)) && (pc[1] == IDLE || <> (pc[1] == IDLE))) }
ltl pause_rests { (<> [] paused) -> (<> [] (at[0] == FREE && at[1] == FREE && at[2] == FREE && at[3] == FREE)) }
#endif

init {
    atomic {
        spec[A] = 5; actual[A] = 5; spec[G] = 2; actual[G] = 2; spec[O] = 1; actual[O] = 1;
        run Replica(0); run Replica(1); run Network(0); run Network(1); run Kubelet(); run Faults(); run Rest()
    }
}
