package setup

import (
	"errors"
	"strings"
	"testing"
)

func TestOptionsAreChecked(t *testing.T) {
	good := Options{OwnerID: "example", Namespace: "example-system", StoragePath: "/var/lib/example"}
	if err := good.check(); err != nil {
		t.Errorf("what the doc comment shows: %v", err)
	}
	for want, change := range map[string]func(*Options){
		"owner id":    func(o *Options) { o.OwnerID = "Example" },
		"Namespace":   func(o *Options) { o.Namespace = "" },
		"StoragePath": func(o *Options) { o.StoragePath = "" },
		"Concurrent":  func(o *Options) { o.Concurrent = -1 },
		"Jitter":      func(o *Options) { o.Jitter = 100 },
	} {
		o := good
		change(&o)
		if err := o.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
}

func TestOwnerIDs(t *testing.T) {
	for _, id := range []string{"ksctl", "a", "team-1.example", strings.Repeat("a", 63)} {
		if err := CheckOwnerID(id); err != nil {
			t.Error(err)
		}
	}
	for _, id := range []string{"", "A", "-a", "a-", "a/b", strings.Repeat("a", 64)} {
		if _, ok := errors.AsType[*OwnerIDError](CheckOwnerID(id)); !ok {
			t.Errorf("%q is fine", id)
		}
	}
}
