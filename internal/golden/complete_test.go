package golden

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

type inner struct{ Name string }

type outer struct {
	inner
	Inner   inner
	Text    string
	Flag    *bool
	List    []inner
	Bytes   []byte
	Map     map[string]inner
	Any     any
	At      time.Time
	Until   *metav1.Time
	Wait    metav1.Duration
	Size    resource.Quantity
	Port    intstr.IntOrString
	Raw     runtime.RawExtension
	Omitted string `json:"-"`
	_       string
}

func completeOuter() outer {
	now := metav1.NewTime(time.Unix(1000, 0))
	x := inner{Name: "a"}
	return outer{inner: x, Inner: x, Text: "a", Flag: new(bool), List: []inner{x, {}}, Bytes: []byte{0},
		Map: map[string]inner{"a": x}, Any: x,
		At: now.Time, Until: &now, Wait: metav1.Duration{Duration: 1}, Size: resource.MustParse("1"),
		Port: intstr.FromInt32(1),
		Raw:  runtime.RawExtension{Raw: []byte("{}")}}
}

func TestCompleteNamesUnsetFields(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*outer)
		want   []string
	}{
		"all fields are set":  {func(*outer) {}, nil},
		"an embedded struct":  {func(v *outer) { v.inner = inner{} }, []string{"v.inner.Name"}},
		"a string":            {func(v *outer) { v.Text = "" }, []string{"v.Text"}},
		"a field of a struct": {func(v *outer) { v.Inner = inner{} }, []string{"v.Inner.Name"}},
		"a nil pointer":       {func(v *outer) { v.Flag = nil }, []string{"v.Flag"}},
		"an empty slice":      {func(v *outer) { v.List = []inner{} }, []string{"v.List"}},
		"the first element":   {func(v *outer) { v.List = []inner{{}} }, []string{"v.List[0].Name"}},
		"no bytes":            {func(v *outer) { v.Bytes = nil }, []string{"v.Bytes"}},
		"an empty map":        {func(v *outer) { v.Map = map[string]inner{} }, []string{"v.Map"}},
		"values of a map": {func(v *outer) { v.Map = map[string]inner{"b": {}, "a": {}} }, []string{"v.Map[a].Name",
			"v.Map[b].Name"}},
		"a nil interface": {func(v *outer) { v.Any = nil }, []string{"v.Any"}},
		"a time": {func(v *outer) { v.At, v.Until = time.Time{}, &metav1.Time{} }, []string{"v.At",
			"v.Until"}},
		"types of Kubernetes": {func(v *outer) { v.Wait, v.Size, v.Port, v.Raw = zeros() }, []string{"v.Wait", "v.Size",
			"v.Port", "v.Raw"}},
	} {
		t.Run(name, func(t *testing.T) {
			v := completeOuter()
			tc.change(&v)
			if got := unset(reflect.ValueOf(&v), "v"); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	Complete(t, map[string]inner{"a": {Name: "a"}})
	Complete(t, new(completeOuter()))
	if got := unset(reflect.ValueOf(nil), "v"); !slices.Equal(got, []string{"v"}) {
		t.Errorf("of nothing: %q", got)
	}
}

func zeros() (w metav1.Duration, s resource.Quantity, p intstr.IntOrString, r runtime.RawExtension) {
	return w, s, p, r
}
