// Package record writes down what kube-scheduler's plugins answer in their own tests.
package record

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"sync"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// verdict is one line of the file: what a plugin says of a pod and the node at `Nodes[On]`; with `On` -1, of any node.
type verdict struct {
	Plugin   string            `json:"plugin"`
	Test     string            `json:"test"`
	Code     string            `json:"code"`
	Reasons  []string          `json:"reasons,omitempty"`
	Settings map[string]bool   `json:"settings,omitempty"`
	Pod      json.RawMessage   `json:"pod"`
	Nodes    []nodeWithPods    `json:"nodes,omitempty"`
	On       int               `json:"on"`
	Objects  []json.RawMessage `json:"objects,omitempty"`
	// Unprepared: the test states itself what PreFilter would have found in the pod.
	Unprepared bool `json:"unprepared,omitempty"`
}

type nodeWithPods struct {
	Node json.RawMessage   `json:"node"`
	Pods []json.RawMessage `json:"pods,omitempty"`
}

type asked struct {
	plugin any
	pod    *v1.Pod
}

// beforehand is what PreFilter answered, for the calls of Filter with the same plugin and pod that may follow.
type beforehand struct {
	status *fwk.Status
	only   *fwk.PreFilterResult
	places []int
}

var (
	lock     sync.Mutex
	verdicts []*verdict
	earlier  = map[asked]*beforehand{}
)

type filter interface {
	Filter(context.Context, fwk.CycleState, *v1.Pod, fwk.NodeInfo) *fwk.Status
}

type preFilter interface {
	PreFilter(context.Context, fwk.CycleState, *v1.Pod, []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status)
}

type preEnqueue interface {
	PreEnqueue(context.Context, *v1.Pod) *fwk.Status
}

// Filter asks a plugin about one node. A node that PreFilter ruled out already is ruled out for its reason.
func Filter(test string, plugin filter, ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	answer := newVerdict(test, plugin, pod)
	answer.show(plugin, node)
	status := plugin.Filter(ctx, state, pod, node)
	lock.Lock()
	defer lock.Unlock()
	final := status
	if before := earlier[asked{plugin, pod}]; before != nil {
		for _, place := range before.places {
			verdicts[place] = nil
		}
		before.places = nil
		switch {
		case before.status.IsSkip():
			final = nil
		case !before.status.IsSuccess():
			final = before.status
		case before.only != nil && !before.only.AllNodes() && !before.only.NodeNames.Has(node.Node().Name):
			final = fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "left out by PreFilter")
		}
	} else if _, prepares := plugin.(preFilter); prepares {
		answer.Unprepared = true
	}
	verdicts = append(verdicts, answer.given(final))
	return status
}

// PreFilter asks a plugin about all nodes at once. Where the test does not call Filter afterwards, the verdicts are those on
// each node that the plugin knows, or, of a refusal, on any where it knows none.
func PreFilter(test string, plugin preFilter, ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	answer := newVerdict(test, plugin, pod)
	known := answer.show(plugin, nil)
	only, status := plugin.PreFilter(ctx, state, pod, nodes)
	lock.Lock()
	defer lock.Unlock()
	before := &beforehand{status: status, only: only}
	earlier[asked{plugin, pod}] = before
	expect := func(place int, status *fwk.Status) {
		one := *answer.given(status)
		one.On = place
		before.places = append(before.places, len(verdicts))
		verdicts = append(verdicts, &one)
	}
	filters, ok := plugin.(filter)
	for place, node := range known {
		switch {
		case node.Node() == nil: // Only pods refer to it.
		case !status.IsSuccess():
			expect(place, status)
		case ok:
			expect(place, filters.Filter(ctx, state, pod, node))
		}
	}
	if len(known) == 0 && !status.IsSuccess() {
		expect(-1, status)
	}
	return only, status
}

// PreEnqueue asks a plugin whether a pod may be scheduled at all. Only a refusal is a verdict.
func PreEnqueue(test string, plugin preEnqueue, ctx context.Context, pod *v1.Pod) *fwk.Status {
	answer := newVerdict(test, plugin, pod)
	answer.show(plugin, nil)
	status := plugin.PreEnqueue(ctx, pod)
	if !status.IsSuccess() || answer.Plugin == "SchedulingGates" {
		lock.Lock()
		defer lock.Unlock()
		verdicts = append(verdicts, answer.given(status))
	}
	return status
}

// Fits asks NodePorts about one node.
func Fits(test string, fits func(*v1.Pod, fwk.NodeInfo) bool, pod *v1.Pod, node fwk.NodeInfo) bool {
	answer := newVerdict(test, nil, pod)
	answer.Plugin = "NodePorts"
	answer.show(nil, node)
	fine := fits(pod, node)
	var status *fwk.Status
	if !fine {
		status = fwk.NewStatus(fwk.Unschedulable)
	}
	lock.Lock()
	defer lock.Unlock()
	verdicts = append(verdicts, answer.given(status))
	return fine
}

// FindPodVolumes asks VolumeBinding's binder about one node.
func FindPodVolumes[Logger, Binder, Found any, Reasons ~[]Reason, Reason ~string](
	test string,
	find func(Logger, Binder, *v1.Pod, *v1.Node) (Found, Reasons, error),
	logger Logger,
	binder Binder,
	pod *v1.Pod,
	node *v1.Node,
) (Found, Reasons, error) {
	answer := newVerdict(test, binder, pod)
	answer.Plugin = "VolumeBinding"
	answer.show(binder, nil)
	answer.On = answer.place(node)
	found, reasons, err := find(logger, binder, pod, node)
	var status *fwk.Status
	if err != nil {
		status = fwk.AsStatus(err)
	} else if len(reasons) > 0 {
		status = fwk.NewStatus(fwk.UnschedulableAndUnresolvable)
		for _, reason := range reasons {
			status.AppendReason(string(reason))
		}
	}
	lock.Lock()
	defer lock.Unlock()
	verdicts = append(verdicts, answer.given(status))
	return found, reasons, err
}

// Write puts all verdicts into a file, one a line.
func Write(path string) {
	file, err := os.Create(path)
	if err != nil {
		log.Fatal(err)
	}
	lines := bufio.NewWriter(file)
	encoder := json.NewEncoder(lines)
	for _, one := range verdicts {
		if one != nil {
			if err := encoder.Encode(one); err != nil {
				log.Fatal(err)
			}
		}
	}
	if err := lines.Flush(); err != nil {
		log.Fatal(err)
	}
	if err := file.Close(); err != nil {
		log.Fatal(err)
	}
}

func newVerdict(test string, plugin any, pod *v1.Pod) *verdict {
	answer := &verdict{Test: test, On: -1, Pod: encoded(pod), Settings: settings(plugin)}
	if named, ok := plugin.(fwk.Plugin); ok {
		answer.Plugin = named.Name()
	}
	return answer
}

// show takes in what a plugin knows, and the node that it is asked about; it returns the nodes.
func (v *verdict) show(plugin any, node fwk.NodeInfo) []fwk.NodeInfo {
	known := knownTo(plugin)
	for _, one := range known.objects {
		v.Objects = append(v.Objects, encoded(one))
	}
	nodes := known.nodes
	if node != nil {
		v.On = len(nodes)
		for place, one := range nodes {
			if one.Node() != nil && node.Node() != nil && one.Node().Name == node.Node().Name {
				nodes[place], v.On = node, place
				break
			}
		}
		if v.On == len(nodes) {
			nodes = append(nodes, node)
		}
	}
	for _, one := range nodes {
		shown := nodeWithPods{Node: encoded(one.Node())}
		for _, pod := range one.GetPods() {
			shown.Pods = append(shown.Pods, encoded(pod.GetPod()))
		}
		v.Nodes = append(v.Nodes, shown)
	}
	return nodes
}

// place adds a node by itself, and tells where.
func (v *verdict) place(node *v1.Node) int {
	v.Nodes = append(v.Nodes, nodeWithPods{Node: encoded(node)})
	return len(v.Nodes) - 1
}

func (v *verdict) given(status *fwk.Status) *verdict {
	v.Code = status.Code().String()
	if status != nil {
		v.Reasons = status.Reasons()
	}
	return v
}

func encoded(object any) json.RawMessage {
	text, err := json.Marshal(object)
	if err != nil {
		panic(fmt.Sprintf("%T: %v", object, err))
	}
	return text
}
