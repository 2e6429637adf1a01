package dependency

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

func target(name string) Target {
	return Target{Resource: configMaps, NamespacedName: types.NamespacedName{Namespace: "ns", Name: name}}
}

func user(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: name}
}

// users says who uses each target that is watched, and what is kept of each user.
func (w *Watcher) users() string {
	var out []string
	for t, x := range w.watches {
		for u := range x.users {
			out = append(out, u.Name+"→"+t.Name)
		}
		if len(x.users) == 0 {
			out = append(out, "nobody→"+t.Name)
		}
	}
	kept := 0
	for _, targets := range w.targets {
		kept += len(targets)
	}
	slices.Sort(out)
	return fmt.Sprintf("%s (%d)", strings.Join(out, " "), kept)
}

func TestUse(t *testing.T) {
	type use struct{ user, targets string }
	for name, tc := range map[string]struct {
		says []use
		want string
	}{
		"nothing":                        {nil, " (0)"},
		"one":                            {[]use{{"a", "x"}}, "a→x (1)"},
		"again":                          {[]use{{"a", "x"}, {"a", "x"}}, "a→x (1)"},
		"another in its place":           {[]use{{"a", "x"}, {"a", "y"}}, "a→y (1)"},
		"one of two goes":                {[]use{{"a", "x y"}, {"a", "y"}}, "a→y (1)"},
		"nothing any more":               {[]use{{"a", "x y"}, {"a", ""}}, " (0)"},
		"shared":                         {[]use{{"a", "x"}, {"b", "x y"}}, "a→x b→x b→y (3)"},
		"shared, and one goes":           {[]use{{"a", "x"}, {"b", "x y"}, {"b", ""}}, "a→x (1)"},
		"one twice":                      {[]use{{"a", "x x"}}, "a→x (1)"},
		"one twice, and both go":         {[]use{{"a", "x x y"}, {"a", "y"}}, "a→y (1)"},
		"one twice, and one goes":        {[]use{{"a", "x x"}, {"a", "x"}}, "a→x (1)"},
		"one twice, shared, and both go": {[]use{{"a", "x x"}, {"b", "x"}, {"a", ""}}, "b→x (1)"},
		"who never said anything leaves": {[]use{{"a", ""}}, " (0)"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatcher(nil)
			for _, u := range tc.says {
				var targets []Target
				for _, name := range strings.Fields(u.targets) {
					targets = append(targets, target(name))
				}
				w.Use(user(u.user), targets)
			}
			if got := w.users(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestAt(t *testing.T) {
	name := types.NamespacedName{Namespace: "ns", Name: "x"}
	if got := At(&meta.RESTMapping{Resource: configMaps, Scope: meta.RESTScopeNamespace}, name); got != target("x") {
		t.Errorf("got %v", got)
	}
	namespaces := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	if got := At(&meta.RESTMapping{Resource: namespaces, Scope: meta.RESTScopeRoot}, name); got != (Target{Resource: namespaces, NamespacedName: types.NamespacedName{Name: "x"}}) {
		t.Errorf("got %v", got)
	}
}

// soon is what comes over a channel.
func soon[T any](t *testing.T, c <-chan T) (what T) {
	t.Helper()
	select {
	case what = <-c:
	case <-time.After(time.Minute):
		t.Fatal("nothing came within a minute")
	}
	return what
}

// Who uses an object is woken once it is known, and whenever it changed.
func TestUsersAreWoken(t *testing.T) {
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	object := func(version string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x", ResourceVersion: version}}
	}
	server := metadatafake.NewSimpleMetadataClient(scheme, object("1"))
	// This server tells a watch only of what happens once it has begun.
	watching := make(chan struct{}, 1)
	server.PrependWatchReactor("*", func(a clienttesting.Action) (bool, apiwatch.Interface, error) {
		x, err := server.Tracker().Watch(a.GetResource(), a.GetNamespace())
		watching <- struct{}{}
		return true, x, err
	})
	w, woken := newWatcher(server), make(chan string)
	w.Subscribe(func(u types.NamespacedName) { woken <- u.Name })
	if _, known := w.Version(target("x")); known {
		t.Error("nobody uses it, and it is known")
	}
	w.Use(user("before"), []Target{target("x")})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- w.Start(ctx) }()
	expect := func(why, who, version string) {
		t.Helper()
		if got := soon(t, woken); got != who {
			t.Errorf("%s: %s was woken", why, got)
		}
		if v, known := w.Version(target("x")); v != version || !known {
			t.Errorf("%s: version %q, known %t", why, v, known)
		}
	}
	expect("it was listed", "before", "1")
	soon(t, watching)
	if err := server.Tracker().Update(configMaps, object("2"), "ns"); err != nil {
		t.Fatal(err)
	}
	expect("it changed", "before", "2")
	w.Use(user("after"), []Target{target("x"), target("x")})
	w.Use(user("before"), nil)
	if err := server.Tracker().Delete(configMaps, "ns", "x"); err != nil {
		t.Fatal(err)
	}
	expect("it is gone", "after", "")
	w.Use(user("after"), nil)
	if _, known := w.Version(target("x")); known {
		t.Error("nobody uses it any more, and it is known")
	}
	stop()
	if err := soon(t, ended); err != nil {
		t.Error(err)
	}
}
