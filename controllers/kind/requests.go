package kind

import (
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	crreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// One controller reconciles the objects of all served kinds. The name in its requests is
// <kind>.<group>/<name>: the name of an object has no slash.

// queueKey returns the key of an object in the queue.
func queueKey(kind string, object types.NamespacedName) types.NamespacedName {
	return types.NamespacedName{Namespace: object.Namespace, Name: kind + "/" + object.Name}
}

// parseQueueKey is the inverse of queueKey.
func parseQueueKey(key types.NamespacedName) (kind string, object types.NamespacedName) {
	kind, name, _ := strings.Cut(key.Name, "/")
	return kind, types.NamespacedName{Namespace: key.Namespace, Name: name}
}

func request(kind string, object types.NamespacedName) crreconcile.Request {
	return crreconcile.Request{NamespacedName: queueKey(kind, object)}
}

// references are the ConfigMaps, Secrets, service accounts and clusters that objects of served
// kinds use, as values of reconcile.IndexValue. They are known once an object has been reconciled.
// The zero value is empty.
type references struct {
	mu sync.Mutex
	// users are the queue keys of the objects that use something, and uses the inverse.
	users map[string]map[types.NamespacedName]bool
	uses  map[types.NamespacedName][]string
}

// set replaces what an object uses.
func (r *references) set(user types.NamespacedName, values []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, value := range r.uses[user] {
		delete(r.users[value], user)
		if len(r.users[value]) == 0 {
			delete(r.users, value)
		}
	}
	delete(r.uses, user)
	if len(values) == 0 {
		return
	}
	if r.users == nil {
		r.users, r.uses = map[string]map[types.NamespacedName]bool{}, map[types.NamespacedName][]string{}
	}
	r.uses[user] = values
	for _, value := range values {
		if r.users[value] == nil {
			r.users[value] = map[types.NamespacedName]bool{}
		}
		r.users[value][user] = true
	}
}

// requests returns requests for the objects that use something.
func (r *references) requests(value string) (out []crreconcile.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for user := range r.users[value] {
		out = append(out, crreconcile.Request{NamespacedName: user})
	}
	return out
}
