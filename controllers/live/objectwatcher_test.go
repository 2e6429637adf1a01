package live

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

func objectName(name string) ObjectName {
	return ObjectName{Resource: configMaps, NamespacedName: types.NamespacedName{Namespace: "ns", Name: name}}
}

func user(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: name}
}

// describe lists the users of each watched object, and the number of recorded objects.
func (w *ObjectWatcher[User, State]) describe() string {
	var out []string
	for t, x := range w.watches {
		for u := range x.users {
			out = append(out, any(u).(types.NamespacedName).Name+"→"+t.Name)
		}
		if len(x.users) == 0 {
			out = append(out, "nobody→"+t.Name)
		}
	}
	kept := 0
	for _, targets := range w.objects {
		kept += len(targets)
	}
	slices.Sort(out)
	return fmt.Sprintf("%s (%d)", strings.Join(out, " "), kept)
}

func TestSetObjects(t *testing.T) {
	type use struct{ user, targets string }
	for name, tc := range map[string]struct {
		says []use
		want string
	}{
		"nothing":                        {nil, " (0)"},
		"one":                            {[]use{{"a", "x"}}, "a→x (1)"},
		"repeated":                       {[]use{{"a", "x"}, {"a", "x"}}, "a→x (1)"},
		"replaced":                       {[]use{{"a", "x"}, {"a", "y"}}, "a→y (1)"},
		"one of two removed":             {[]use{{"a", "x y"}, {"a", "y"}}, "a→y (1)"},
		"all removed":                    {[]use{{"a", "x y"}, {"a", ""}}, " (0)"},
		"shared":                         {[]use{{"a", "x"}, {"b", "x y"}}, "a→x b→x b→y (3)"},
		"shared, one removed":            {[]use{{"a", "x"}, {"b", "x y"}, {"b", ""}}, "a→x (1)"},
		"duplicate":                      {[]use{{"a", "x x"}}, "a→x (1)"},
		"duplicate, both removed":        {[]use{{"a", "x x y"}, {"a", "y"}}, "a→y (1)"},
		"duplicate, one removed":         {[]use{{"a", "x x"}, {"a", "x"}}, "a→x (1)"},
		"duplicate, shared, all removed": {[]use{{"a", "x x"}, {"b", "x"}, {"a", ""}}, "b→x (1)"},
		"unknown user removed":           {[]use{{"a", ""}}, " (0)"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newObjectWatcher[types.NamespacedName](nil, metav1.Object.GetResourceVersion)
			for _, u := range tc.says {
				var targets []ObjectName
				for _, name := range strings.Fields(u.targets) {
					targets = append(targets, objectName(name))
				}
				w.SetObjects(user(u.user), targets)
			}
			if got := w.describe(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// receiveWithin returns the next value of a channel, or fails the test after a minute.
func receiveWithin[T any](t *testing.T, c <-chan T) (what T) {
	t.Helper()
	select {
	case what = <-c:
	case <-time.After(time.Minute):
		t.Fatal("no value was received within a minute")
	}
	return what
}

// Users are notified when an object becomes known and whenever it changes.
func TestUsersOfObjectsAreNotified(t *testing.T) {
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	object := func(version string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x", ResourceVersion: version}}
	}
	server := metadatafake.NewSimpleMetadataClient(scheme, object("1"))
	// The fake client sends only events that happen after the watch has started.
	watching := make(chan struct{}, 1)
	server.PrependWatchReactor("*", func(a clienttesting.Action) (bool, apiwatch.Interface, error) {
		x, err := server.Tracker().Watch(a.GetResource(), a.GetNamespace())
		watching <- struct{}{}
		return true, x, err
	})
	w, notified := newObjectWatcher[types.NamespacedName](server, metav1.Object.GetResourceVersion), make(chan string)
	w.Subscribe(func(u types.NamespacedName) { notified <- u.Name })
	if _, known := w.State(objectName("x")); known {
		t.Error("the version of an unwatched object is known")
	}
	w.SetObjects(user("before"), []ObjectName{objectName("x")})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- w.Start(ctx) }()
	expect := func(why, who, version string) {
		t.Helper()
		if got := receiveWithin(t, notified); got != who {
			t.Errorf("%s: %s was notified", why, got)
		}
		if v, known := w.State(objectName("x")); v != version || !known {
			t.Errorf("%s: version %q, known %t", why, v, known)
		}
	}
	expect("listed", "before", "1")
	receiveWithin(t, watching)
	if err := server.Tracker().Update(configMaps, object("2"), "ns"); err != nil {
		t.Fatal(err)
	}
	expect("changed", "before", "2")
	w.SetObjects(user("after"), []ObjectName{objectName("x"), objectName("x")})
	w.SetObjects(user("before"), nil)
	if err := server.Tracker().Delete(configMaps, "ns", "x"); err != nil {
		t.Fatal(err)
	}
	expect("deleted", "after", "")
	w.SetObjects(user("after"), nil)
	if _, known := w.State(objectName("x")); known {
		t.Error("the version is known after the last user was removed")
	}
	stop()
	if err := receiveWithin(t, ended); err != nil {
		t.Error(err)
	}
}
