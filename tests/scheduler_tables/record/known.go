package record

import (
	"reflect"
	"strings"
	"unsafe"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes/scheme"
	fwk "k8s.io/kube-scheduler/framework"
)

// known is what a plugin looks at beside the pod and the node: the nodes of its snapshot, and the objects of its listers.
type known struct {
	nodes   []fwk.NodeInfo
	objects []runtime.Object
}

func knownTo(plugin any) *known {
	found := &known{}
	if plugin != nil {
		found.look(reflect.ValueOf(plugin), 0)
	}
	return found
}

// look goes through the fields of a plugin, whatever their names: listers of the API server's objects all have a method
// List, and those of tests are slices.
func (k *known) look(value reflect.Value, depth int) {
	if !value.IsValid() || depth > 6 {
		return
	}
	switch one := value.Interface().(type) {
	case fwk.SharedLister:
		if infos, err := one.NodeInfos().List(); err == nil {
			k.nodes = append(k.nodes, infos...)
		}
		return
	case fwk.CSIManager:
		k.look(reflect.ValueOf(one.CSINodes()), depth+1)
		return
	case fwk.SharedDRAManager:
		k.addAll(reflect.ValueOf(one.ResourceClaims()), "List")
		k.addAll(reflect.ValueOf(one.ResourceSlices()), "ListWithDeviceTaintRules")
		k.addAll(reflect.ValueOf(one.DeviceClasses()), "List")
		return
	case fwk.Handle:
		return
	}
	if k.addAll(value, "List") {
		return
	}
	switch value.Kind() {
	case reflect.Interface:
		k.look(value.Elem(), depth)
	case reflect.Pointer:
		if !value.IsNil() && value.Elem().Kind() == reflect.Struct && ours(value.Elem().Type()) {
			k.look(value.Elem(), depth+1)
		}
	case reflect.Struct:
		if !ours(value.Type()) || !value.CanAddr() {
			return
		}
		for place := range value.NumField() {
			field := value.Field(place)
			k.look(reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem(), depth+1)
		}
	case reflect.Slice:
		for place := range value.Len() {
			item := value.Index(place)
			if item.Kind() != reflect.Pointer {
				item = item.Addr()
			}
			if object, ok := item.Interface().(runtime.Object); ok {
				k.add(object)
			}
		}
	}
}

// addAll adds what a lister's method returns; it tells whether there is such a method that works.
func (k *known) addAll(lister reflect.Value, name string) bool {
	for lister.Kind() == reflect.Interface {
		lister = lister.Elem()
	}
	if !lister.IsValid() || (lister.Kind() == reflect.Pointer && lister.IsNil()) {
		return false
	}
	method := lister.MethodByName(name)
	if !method.IsValid() {
		return false
	}
	kind := method.Type()
	var arguments []reflect.Value
	switch {
	case kind.NumIn() == 1 && kind.In(0) == reflect.TypeFor[labels.Selector]():
		arguments = append(arguments, reflect.ValueOf(labels.Everything()))
	case kind.NumIn() != 0:
		return false
	}
	results := method.Call(arguments)
	if len(results) == 2 && !results[1].IsNil() {
		return false
	}
	items := results[0]
	for place := range items.Len() {
		item := items.Index(place)
		if object, ok := item.Interface().(runtime.Object); ok {
			k.add(object)
		}
	}
	return true
}

func (k *known) add(object runtime.Object) {
	object = object.DeepCopyObject()
	kinds, _, err := scheme.Scheme.ObjectKinds(object)
	if err != nil {
		return
	}
	object.GetObjectKind().SetGroupVersionKind(kinds[0])
	k.objects = append(k.objects, object)
}

// settings returns what is switched on and off, and which parts of its configuration are not empty.
func settings(plugin any) map[string]bool {
	value := reflect.ValueOf(plugin)
	if value.Kind() != reflect.Pointer || value.Elem().Kind() != reflect.Struct {
		return nil
	}
	found := map[string]bool{}
	switches(value.Elem(), found)
	return found
}

func switches(value reflect.Value, found map[string]bool) {
	for place := range value.NumField() {
		name, field := value.Type().Field(place).Name, value.Field(place)
		switch {
		case field.Kind() == reflect.Bool:
			found[name] = field.Bool()
		case field.Kind() == reflect.Map || field.Kind() == reflect.Slice:
			found[name] = field.Len() > 0
		case field.Type() == reflect.TypeFor[*version.Version]():
		case field.Kind() == reflect.Pointer && strings.HasPrefix(name, "added"):
			found[name] = !field.IsNil()
		case field.Kind() == reflect.Struct && strings.HasSuffix(field.Type().PkgPath(), "plugins/feature"):
			switches(field, found)
		}
	}
}

func ours(kind reflect.Type) bool {
	return strings.HasPrefix(kind.PkgPath(), "schedulertables/") || strings.HasPrefix(kind.PkgPath(), "k8s.io/kubernetes/pkg/scheduler/framework/plugins/")
}
