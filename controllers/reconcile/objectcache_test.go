package reconcile

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestObjectCache(t *testing.T) {
	key := types.NamespacedName{Namespace: "ns", Name: "i"}
	var k ObjectCache[int]
	loads := 0
	get := func(uid types.UID, want int) {
		t.Helper()
		got, err := k.Get(key, uid, func() (int, error) { loads++; return loads, nil })
		if err != nil || got != want {
			t.Errorf("got %d, %v; want %d", got, err, want)
		}
	}
	if _, err := k.Get(key, "a", func() (int, error) { return 9, errors.New("no") }); err == nil {
		t.Error("Get does not return the error of load")
	}
	get("a", 1) // a failed load is not cached
	get("a", 1)
	get("b", 2) // another object
	if v, ok := k.Drop(key); !ok || v != 2 {
		t.Errorf("dropped %d, %v", v, ok)
	}
	if _, ok := k.Drop(key); ok {
		t.Error("dropped twice")
	}
	get("b", 3)
}
