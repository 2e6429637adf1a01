package kind

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// appliedObjects are the cluster-scoped objects that this process applied, by name. An object that
// is as applied needs no request. The zero value is empty.
type appliedObjects struct {
	mu     sync.Mutex
	byName map[string]appliedObject
}

type appliedObject struct {
	content string
	uid     types.UID
	// version is the resourceVersion, or the generation of an object that has one.
	version string
}

// isCurrent reports whether an object was applied with this content, and is as it was then.
func (a *appliedObjects) isCurrent(name, content string, uid types.UID, version string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byName[name] == appliedObject{content, uid, version}
}

func (a *appliedObjects) record(name, content string, uid types.UID, version string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byName == nil {
		a.byName = map[string]appliedObject{}
	}
	a.byName[name] = appliedObject{content, uid, version}
}

func (a *appliedObjects) forget(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.byName, name)
}
