package setup

import (
	"errors"
	"strings"
	"testing"
)

func TestOptionsValidate(t *testing.T) {
	good := Options{OwnerID: "example", Namespace: "example-system", StoragePath: "/var/lib/example"}
	if err := good.validate(); err != nil {
		t.Errorf("the options of the package example: %v", err)
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
		if err := o.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
}

func TestValidateOwnerID(t *testing.T) {
	for _, id := range []string{"ksctl", "a", "team-1.example", strings.Repeat("a", 63)} {
		if err := ValidateOwnerID(id); err != nil {
			t.Error(err)
		}
	}
	for _, id := range []string{"", "A", "-a", "a-", "a/b", strings.Repeat("a", 64)} {
		if _, ok := errors.AsType[*OwnerIDError](ValidateOwnerID(id)); !ok {
			t.Errorf("%q is accepted", id)
		}
	}
}
