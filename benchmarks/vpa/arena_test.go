// Package vpa drives VPA's recommender and updater over a recording, for benchmarks/vpa_arena.py.
//
// VPA reads the clock itself, so everything runs under testing/synctest, where time stands still until this program
// moves it on: the program is built with "go test -c". It reads one JSON message a line from standard input and answers
// with one line on the file descriptor that ARENA_ANSWERS names.
package vpa

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/admission-controller/resource/pod/patch"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/admission-controller/resource/pod/recommendation"
	vpatypes "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/config"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/logic"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/model"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/routines"
	controllerfetcher "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/target/controller_fetcher"
	updaterconfig "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/updater/config"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/updater/inplace"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/updater/priority"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/updater/restriction"
	updaterutils "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/updater/utils"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/utils/limitrange"
	vpautils "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/utils/vpa"
)

const (
	containerName = "app"
	loopSeconds   = 60
	daySeconds    = 86400
	// A container starts a moment after its pod is created, or after it was killed.
	startUp = time.Second
)

// message is what the replay says: the first one has setup, each later one exactly one of the others.
type message struct {
	Setup   *setup
	Observe *observe
	Admit   []int
	Decide  *decide
}

type setup struct {
	Workload    []int // of each container, numbered from 0
	CPU         []int64
	Memory      []int64
	Limit       []int64
	NodeCPU     int64
	NodeMemory  int64
	HasMemory   bool
	StepSeconds int64
	Loops       int64
	MinReplicas int32
}

// observe has the samples of an interval; each is a time and pairs of container and amount. A kill is a container, a
// time and the memory that was requested.
type observe struct {
	View  view
	Rows  []row
	Kills [][3]int64
}

type row struct {
	At     int64
	CPU    [][2]int64
	Memory [][2]int64
}

// view has one entry a container: the node (negative for pending or absent), how many pods it had, when the last was
// created, and what it requests.
type view struct {
	At     int64
	Node   []int
	Born   []int64
	BornAt []int64
	CPU    []int64
	Memory []int64
	Limit  []int64
}

type decide struct {
	View view
	Used []int64 // the last memory sample
}

type sizes struct {
	Container, CPU, Memory, Limit []int64
}

type answer struct {
	Sizes sizes
	Evict []int64
}

// pod is the pod of one container: what the API server has of it, and the resize that the kubelet has not done yet.
type pod struct {
	object    *corev1.Pod
	startedAt time.Time
	refused   bool
	open      bool
	wanted    corev1.ResourceRequirements
	group     int
}

type arena struct {
	setup     setup
	offset    int64
	state     model.ClusterState
	logic     logic.PodResourceRecommender
	capping   routines.RecommendationPostProcessor
	processor vpautils.RecommendationProcessor
	provider  recommendation.Provider
	factory   restriction.PodsRestrictionFactory
	replicas  informers.SharedInformerFactory
	vpas      []*vpatypes.VerticalPodAutoscaler
	pods      []*pod
	born      []int64
}

func TestArena(t *testing.T) {
	descriptor, err := strconv.Atoi(os.Getenv("ARENA_ANSWERS"))
	if err != nil {
		t.Skip("ARENA_ANSWERS names no file descriptor: there is nobody to answer to")
	}
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	synctest.Test(t, func(t *testing.T) {
		if err := serve(os.Stdin, os.NewFile(uintptr(descriptor), "answers")); err != nil {
			t.Fatal(err)
		}
	})
}

func serve(input io.Reader, output io.Writer) error {
	lines := bufio.NewReaderSize(input, 1<<20)
	answers := json.NewEncoder(output)
	var replay *arena
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		var next message
		if err := json.Unmarshal(line, &next); err != nil {
			return err
		}
		var found answer
		switch {
		case next.Setup != nil:
			replay, err = newArena(*next.Setup)
		case next.Observe != nil:
			err = replay.observe(*next.Observe)
		case next.Decide != nil:
			found, err = replay.decide(*next.Decide)
		default:
			found, err = replay.admit(next.Admit)
		}
		if err != nil {
			return err
		}
		if err := answers.Encode(found); err != nil {
			return err
		}
	}
}

func newArena(given setup) (*arena, error) {
	// The reactor stands for the API server: the restrictions only ask whether it took a resize or an eviction.
	client := &fake.Clientset{}
	client.AddReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, &corev1.Pod{}, nil })
	defaults := config.DefaultRecommenderConfig()
	updater := updaterconfig.DefaultUpdaterConfig()
	processor := vpautils.NewCappingRecommendationProcessor(limitrange.NewNoopLimitsCalculator())
	provider := recommendation.NewProvider(limitrange.NewNoopLimitsCalculator(), processor)
	replicas := informers.NewSharedInformerFactory(client, 0)
	largest := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(given.NodeCPU, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(given.NodeMemory, resource.BinarySI),
	}
	found := &arena{
		setup: given,
		state: model.NewClusterState(time.Hour),
		logic: logic.CreatePodResourceRecommender(logic.RecommendationConfig{
			SafetyMarginFraction:       defaults.SafetyMarginFraction,
			PodMinCPUMillicores:        defaults.PodMinCPUMillicores,
			PodMinMemoryMb:             defaults.PodMinMemoryMb,
			TargetCPUPercentile:        defaults.TargetCPUPercentile,
			LowerBoundCPUPercentile:    defaults.LowerBoundCPUPercentile,
			UpperBoundCPUPercentile:    defaults.UpperBoundCPUPercentile,
			ConfidenceIntervalCPU:      defaults.ConfidenceIntervalCPU,
			TargetMemoryPercentile:     defaults.TargetMemoryPercentile,
			LowerBoundMemoryPercentile: defaults.LowerBoundMemoryPercentile,
			UpperBoundMemoryPercentile: defaults.UpperBoundMemoryPercentile,
			ConfidenceIntervalMemory:   defaults.ConfidenceIntervalMemory,
		}),
		capping:   routines.NewCappingRecommendationProcessor(largest),
		processor: processor,
		provider:  provider,
		factory: restriction.NewPodsRestrictionFactory(
			client, replicas, updater.MinReplicas, updater.EvictionToleranceFraction,
			[]patch.Calculator{inplace.NewResourceInPlaceUpdatesCalculator(provider)}, false,
		),
		replicas: replicas,
		pods:     make([]*pod, len(given.Workload)),
		born:     make([]int64, len(given.Workload)),
	}
	groups := 0
	for _, group := range given.Workload {
		groups = max(groups, group+1)
	}
	for group := range groups {
		one := newVpa(group, given)
		if err := found.state.AddOrUpdateVpa(one, labels.SelectorFromSet(podLabels(group))); err != nil {
			return nil, err
		}
		found.vpas = append(found.vpas, one)
	}
	found.state.SetObservedVPAs(found.vpas)
	return found, nil
}

func newVpa(group int, given setup) *vpatypes.VerticalPodAutoscaler {
	mode := vpatypes.UpdateModeInPlaceOrRecreate
	minimum := given.MinReplicas
	one := &vpatypes.VerticalPodAutoscaler{
		TypeMeta:   metav1.TypeMeta{APIVersion: "autoscaling.k8s.io/v1", Kind: "VerticalPodAutoscaler"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOf(group), Name: "vpa"},
		Spec: vpatypes.VerticalPodAutoscalerSpec{
			TargetRef:    &autoscaling.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "set"},
			UpdatePolicy: &vpatypes.PodUpdatePolicy{UpdateMode: &mode, MinReplicas: &minimum},
		},
	}
	if !given.HasMemory {
		resources := []corev1.ResourceName{corev1.ResourceCPU}
		one.Spec.ResourcePolicy = &vpatypes.PodResourcePolicy{
			ContainerPolicies: []vpatypes.ContainerResourcePolicy{
				{ContainerName: vpatypes.DefaultContainerResourcePolicy, ControlledResources: &resources},
			},
		}
	}
	return one
}

// at puts the clock of the replay on the one of synctest, which begins at midnight, at the same time of day.
func (a *arena) at(seconds int64) time.Time {
	return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(seconds-a.offset) * time.Second)
}

func (a *arena) sleepUntil(seconds int64) {
	if left := time.Until(a.at(seconds)); left > 0 {
		time.Sleep(left)
	}
}

// observe is what the recommender does each minute: pods, samples, kills, and recommendations after the last minute.
func (a *arena) observe(seen observe) error {
	if a.offset == 0 {
		first := seen.Rows[0].At - a.setup.StepSeconds
		a.offset = first - (first%daySeconds+daySeconds)%daySeconds
		a.sleepUntil(first)
	}
	a.meet(seen.View)
	minutes := max(1, a.setup.StepSeconds/loopSeconds)
	for _, samples := range seen.Rows {
		for back := minutes - 1; back >= 0; back-- {
			for _, sample := range samples.CPU {
				at := samples.At - back*loopSeconds
				if err := a.sample(int(sample[0]), model.ResourceCPU, sample[1], at); err != nil {
					return err
				}
			}
		}
		for _, sample := range samples.Memory {
			if err := a.sample(int(sample[0]), model.ResourceMemory, sample[1], samples.At); err != nil {
				return err
			}
		}
	}
	for _, kill := range seen.Kills {
		a.kill(int(kill[0]), kill[1], kill[2])
	}
	// The updater's loops of this interval come next, so the clock stands at the first of them.
	last := seen.Rows[len(seen.Rows)-1].At
	a.sleepUntil(last - (a.setup.Loops-1)*loopSeconds)
	a.recommend()
	return nil
}

func (a *arena) sample(container int, kind model.ResourceName, amount int64, at int64) error {
	one := a.pods[container]
	if one == nil {
		return fmt.Errorf("a sample of container %d, which has no pod", container)
	}
	// A sample that VPA finds invalid or out of order is dropped there, as in a cluster.
	_ = a.state.AddSample(&model.ContainerUsageSampleWithKey{
		ContainerUsageSample: model.ContainerUsageSample{
			MeasureStart: a.at(at), Usage: model.ResourceAmount(amount), Resource: kind,
		},
		Container: containerID(one.object),
	})
	return nil
}

func (a *arena) kill(container int, at, requested int64) {
	one := a.pods[container]
	if one == nil {
		return
	}
	_ = a.state.RecordOOM(containerID(one.object), a.at(at), model.ResourceAmount(requested))
	one.object.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
		Reason:     "OOMKilled",
		StartedAt:  metav1.NewTime(one.startedAt),
		FinishedAt: metav1.NewTime(a.at(at)),
	}
	one.startedAt = a.at(at).Add(startUp)
}

func (a *arena) recommend() {
	for _, observed := range a.vpas {
		known := a.state.VPAs()[model.VpaID{Namespace: observed.Namespace, VpaName: observed.Name}]
		found := logic.MapToListOfRecommendedContainerResources(
			a.logic.GetRecommendedPodResources(routines.GetContainerNameToAggregateStateMap(known)),
			logic.RecommendationFormat{RoundCPUMillicores: 1, RoundMemoryBytes: 1},
		)
		known.UpdateRecommendation(a.capping.Process(observed, found))
		known.UpdateConditions(known.PodCount > 0)
		observed.Status = *known.AsStatus()
	}
	a.state.RateLimitedGarbageCollectAggregateCollectionStates(
		context.Background(), time.Now(), controllerfetcher.FakeControllerFetcher{},
	)
}

// meet makes the pods of the model those of a view.
func (a *arena) meet(now view) {
	configured := make([]int32, len(a.vpas))
	for container, node := range now.Node {
		group := a.setup.Workload[container]
		if node < -1 {
			a.forget(container)
			continue
		}
		configured[group]++
		if a.pods[container] == nil || a.born[container] != now.Born[container] {
			a.forget(container)
			a.create(container, group, now)
		}
		a.update(a.pods[container], container, now)
	}
	for group, count := range configured {
		name := metav1.ObjectMeta{Namespace: namespaceOf(group), Name: "set"}
		set := &appsv1.ReplicaSet{ObjectMeta: name, Spec: appsv1.ReplicaSetSpec{Replicas: &count}}
		_ = a.replicas.Apps().V1().ReplicaSets().Informer().GetStore().Add(set)
	}
}

func (a *arena) create(container, group int, now view) {
	name := fmt.Sprintf("pod-%d-%d", container, now.Born[container])
	controller, created := true, a.at(now.BornAt[container])
	start := metav1.NewTime(created)
	object := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespaceOf(group), Name: name, UID: types.UID(name), Labels: podLabels(group),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "set", Controller: &controller}},
		},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: containerName}}},
		Status: corev1.PodStatus{StartTime: &start, ContainerStatuses: []corev1.ContainerStatus{{Name: containerName}}},
	}
	a.pods[container] = &pod{object: object, startedAt: created.Add(startUp), group: group}
	a.born[container] = now.Born[container]
}

func (a *arena) update(one *pod, container int, now view) {
	actual := requirements(now.CPU[container], now.Memory[container], now.Limit[container], a.setup.HasMemory)
	object := one.object
	object.Status.Phase = corev1.PodRunning
	if now.Node[container] < 0 {
		object.Status.Phase = corev1.PodPending
	}
	if one.open && same(actual, one.wanted) {
		one.open, one.refused = false, false
	}
	a.setSizes(one, actual)
	id := model.PodID{Namespace: object.Namespace, PodName: object.Name}
	a.state.AddOrUpdatePod(id, object.Labels, object.Status.Phase)
	_ = a.state.AddOrUpdateContainer(containerID(object), model.Resources{
		model.ResourceCPU:    model.ResourceAmount(now.CPU[container]),
		model.ResourceMemory: model.ResourceAmount(now.Memory[container]),
	})
}

// setSizes states what the kubelet has done, and, with a resize that it has not, that it is deferred or refused.
func (*arena) setSizes(one *pod, actual corev1.ResourceRequirements) {
	object := one.object
	object.Status.ContainerStatuses[0].Resources = &actual
	object.Spec.Containers[0].Resources = actual
	object.Status.Conditions = nil
	if !one.open {
		return
	}
	object.Spec.Containers[0].Resources = one.wanted
	condition := corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred}
	if one.refused {
		condition.Type, condition.Reason = corev1.PodResizeInProgress, corev1.PodReasonError
		condition.Message = "memory in use is above the new limit"
	}
	object.Status.Conditions = []corev1.PodCondition{condition}
}

func (a *arena) forget(container int) {
	if one := a.pods[container]; one != nil {
		a.state.DeletePod(model.PodID{Namespace: one.object.Namespace, PodName: one.object.Name})
		a.pods[container] = nil
	}
}

// admit is what the admission controller makes of the pods' templates.
func (a *arena) admit(containers []int) (answer, error) {
	var found answer
	for _, container := range containers {
		group := a.setup.Workload[container]
		template := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOf(group), Name: "new", Labels: podLabels(group)},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: containerName,
				Resources: requirements(
					a.setup.CPU[container], a.setup.Memory[container], a.setup.Limit[container], a.setup.HasMemory,
				),
			}}},
		}
		wanted, err := a.wanted(template, a.vpas[group])
		if err != nil {
			return found, err
		}
		found.Sizes.add(container, wanted)
	}
	return found, nil
}

// wanted returns a pod's requirements with what VPA recommends, as both of its webhooks write them.
func (a *arena) wanted(of *corev1.Pod, by *vpatypes.VerticalPodAutoscaler) (corev1.ResourceRequirements, error) {
	result := of.Spec.Containers[0].Resources.DeepCopy()
	resources, _, err := a.provider.GetContainersResourcesForPod(of, by)
	if err != nil || len(resources) == 0 {
		return *result, err
	}
	if result.Requests == nil {
		result.Requests = corev1.ResourceList{}
	}
	for name, amount := range resources[0].Requests {
		result.Requests[name] = amount
	}
	for name, amount := range resources[0].Limits {
		if result.Limits == nil {
			result.Limits = corev1.ResourceList{}
		}
		result.Limits[name] = amount
	}
	return *result, nil
}

// decide runs the updater's loops of an interval: once a minute, each over all groups.
func (a *arena) decide(asked decide) (answer, error) {
	a.meet(asked.View)
	evicted := map[int]bool{}
	for loop := range a.setup.Loops {
		a.sleepUntil(asked.View.At - (a.setup.Loops-1-loop)*loopSeconds)
		groups := make([][]*corev1.Pod, len(a.vpas))
		containers := map[types.UID]int{}
		for container, one := range a.pods {
			if one == nil {
				continue
			}
			containers[one.object.UID] = container
			// What is evicted is pending until its replacement has a node, which the replay decides.
			if evicted[container] {
				one.object.Status.Phase = corev1.PodPending
				continue
			}
			groups[one.group] = append(groups[one.group], one.object)
		}
		for group, pods := range groups {
			if len(pods) == 0 {
				continue
			}
			if err := a.updateGroup(a.vpas[group], pods, containers, asked.Used, evicted); err != nil {
				return answer{}, err
			}
		}
	}
	var found answer
	for container, one := range a.pods {
		switch {
		case one == nil:
		case evicted[container]:
			found.Evict = append(found.Evict, int64(container))
		case one.open && !one.refused && asked.View.Node[container] >= 0:
			found.Sizes.add(container, one.wanted)
		}
	}
	return found, nil
}

// updateGroup is one loop of the updater over the pods of one VPA: what is to be resized, then what is to be evicted.
func (a *arena) updateGroup(
	by *vpatypes.VerticalPodAutoscaler, pods []*corev1.Pod, containers map[types.UID]int, used []int64, evicted map[int]bool,
) error {
	stats, creators, err := a.factory.GetCreatorMaps(pods, by)
	if err != nil {
		return err
	}
	resizing := a.factory.NewPodsInPlaceRestriction(stats, creators)
	evicting := a.factory.NewPodsEvictionRestriction(stats, creators)
	defaults := updaterconfig.DefaultUpdaterConfig()
	calculator := priority.NewUpdatePriorityCalculator(by, priority.UpdateConfig{
		MinChangePriority:          defaults.DefaultUpdateThreshold,
		PodLifetimeUpdateThreshold: defaults.PodLifetimeUpdateThreshold,
		EvictAfterOOMThreshold:     defaults.EvictAfterOOMThreshold,
	}, a.processor, priority.NewProcessor())
	for _, one := range pods {
		switch resizing.CanInPlaceUpdate(one, by, nil) {
		case updaterutils.InPlaceApproved, updaterutils.InPlaceEvict:
			calculator.AddPod(one, time.Now(), nil)
		}
	}
	events := &record.FakeRecorder{}
	var toEvict []*corev1.Pod
	for _, one := range calculator.GetSortedPods(priority.NewDefaultPodEvictionAdmission()) {
		switch resizing.CanInPlaceUpdate(one, by, nil) {
		case updaterutils.InPlaceEvict:
			toEvict = append(toEvict, one)
		case updaterutils.InPlaceApproved:
			wanted, err := a.wanted(one, by)
			if err != nil {
				return err
			}
			if resizing.InPlaceUpdate(one, by, events) != nil {
				toEvict = append(toEvict, one)
				continue
			}
			a.written(containers[one.UID], wanted, used)
		}
	}
	for _, one := range toEvict {
		if evicting.CanEvict(one) && evicting.Evict(one, by, events) == nil {
			evicted[containers[one.UID]] = true
		}
	}
	return nil
}

// written takes note of a resize. The kubelet refuses a limit that is lowered below what is in use, at once.
func (a *arena) written(container int, wanted corev1.ResourceRequirements, used []int64) {
	one := a.pods[container]
	one.open, one.wanted = true, wanted
	limit, had := wanted.Limits.Memory().Value(), one.object.Spec.Containers[0].Resources.Limits.Memory().Value()
	one.refused = limit > 0 && limit < had && used[container] > limit
	actual := one.object.Status.ContainerStatuses[0].Resources
	if one.refused {
		a.setSizes(one, *actual)
		return
	}
	// Whether there is room shows in the next view; until then the kubelet is taken to have done it.
	one.object.Status.ContainerStatuses[0].Resources = &wanted
	one.object.Spec.Containers[0].Resources = wanted
}

func (s *sizes) add(container int, of corev1.ResourceRequirements) {
	s.Container = append(s.Container, int64(container))
	s.CPU = append(s.CPU, of.Requests.Cpu().MilliValue())
	s.Memory = append(s.Memory, of.Requests.Memory().Value())
	s.Limit = append(s.Limit, of.Limits.Memory().Value())
}

// requirements leaves out what is 0, as an object would.
func requirements(cpu, memory, limit int64, hasMemory bool) corev1.ResourceRequirements {
	found := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	if cpu > 0 {
		found.Requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(cpu, resource.DecimalSI)
	}
	if memory > 0 && hasMemory {
		found.Requests[corev1.ResourceMemory] = *resource.NewQuantity(memory, resource.BinarySI)
	}
	if limit > 0 && hasMemory {
		found.Limits[corev1.ResourceMemory] = *resource.NewQuantity(limit, resource.BinarySI)
	}
	return found
}

func same(one, other corev1.ResourceRequirements) bool {
	return one.Requests.Cpu().Cmp(*other.Requests.Cpu()) == 0 && one.Requests.Memory().Cmp(*other.Requests.Memory()) == 0
}

func containerID(of *corev1.Pod) model.ContainerID {
	return model.ContainerID{
		PodID:         model.PodID{Namespace: of.Namespace, PodName: of.Name},
		ContainerName: containerName,
	}
}

func namespaceOf(group int) string { return fmt.Sprintf("workload-%d", group) }

func podLabels(group int) labels.Set { return labels.Set{"workload": fmt.Sprint(group)} }
