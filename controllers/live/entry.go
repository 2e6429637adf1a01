package live

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/stacks"
)

// objectKey identifies an object within its kind.
type objectKey struct{ namespace, name string }

type flags uint16

const (
	flagFinished flags = 1 << iota
	flagDeleting
	flagLabelLost
	// flagMarkLost means that the mark no longer has the id of this object. The entry stays
	// stored under its last owner.
	flagMarkLost
	// flagHinted means that a watch or a list no longer contains the object. Either the object
	// or its label is gone; a GET has to confirm which.
	flagHinted
	flagReplicas
	flagAdopted
	flagSucceeded
	flagProtected
	flagSuspended
	flagTrackedByTool
	flagKeptByHelm
	flagKeptWhenPruned
	flagKeptWhenDeleted
	flagResultRecorded
)

// entry is a packed Object. An index may hold tens of thousands of them.
type entry struct {
	uid             uuid.UUID
	resourceVersion uint64
	version         string
	owner           string
	message         string
	otherManager    string
	rare            *rareFields
	ownedHash       [12]byte
	// listRound is the number of the last list that contained the object.
	listRound uint32
	readiness Readiness
	flags     flags
}

// rareFields holds the fields that few objects have.
type rareFields struct {
	keptFields        []KeptField
	finalizers        []string
	deletionTimestamp time.Time
	finalizerManager  string
	deletionMessage   string
	serves            *stacks.ServedKind
	reported          string
	result            string
	// uid is set if it is not a UUID, resourceVersion if it is not a number.
	uid, resourceVersion string
}

var noRareFields rareFields

func (e *entry) is(f flags) bool { return e.flags&f != 0 }

func (e *entry) set(f flags, on bool) {
	if on {
		e.flags |= f
	} else {
		e.flags &^= f
	}
}

func (e *entry) UID() types.UID {
	if e.rare != nil && e.rare.uid != "" {
		return types.UID(e.rare.uid)
	}
	if e.uid == uuid.Nil {
		return ""
	}
	return types.UID(e.uid.String())
}

// hasUID is true for an entry of the object with the uid; false for nil.
func (e *entry) hasUID(uid types.UID) bool { return e != nil && e.UID() == uid }

// pack converts an Object into an entry. The caller sets owner.
func pack(o *Object, in *interner) *entry {
	e := &entry{readiness: o.Readiness, version: in.intern(o.Version), otherManager: in.intern(o.OtherManager),
		message: in.intern(o.Message)}
	e.set(flagFinished, o.Finished)
	e.set(flagDeleting, o.Deleting)
	e.set(flagSucceeded, o.Succeeded)
	e.set(flagAdopted, o.Adopted)
	e.set(flagProtected, o.Protected)
	e.set(flagSuspended, o.Suspended)
	e.set(flagTrackedByTool, o.TrackedByTool)
	e.set(flagKeptByHelm, o.KeptByHelm)
	e.set(flagKeptWhenPruned, o.KeptWhenPruned)
	e.set(flagKeptWhenDeleted, o.KeptWhenDeleted)
	e.set(flagResultRecorded, o.ResultRecorded)
	var r rareFields
	var ok bool
	if e.uid, ok = parseUUID(string(o.UID)); !ok {
		r.uid = strings.Clone(string(o.UID))
	}
	if e.resourceVersion = parseResourceVersion(o.ResourceVersion); e.resourceVersion == 0 ||
		strconv.FormatUint(e.resourceVersion, 10) != o.ResourceVersion {
		r.resourceVersion = strings.Clone(o.ResourceVersion)
	}
	hash := o.OwnedHash
	if len(hash) > ownedHashLen {
		e.set(flagReplicas, true)
		hash = hash[:ownedHashLen]
	}
	if b, err := base64.RawURLEncoding.DecodeString(hash); err == nil {
		copy(e.ownedHash[:], b)
	}
	r.deletionTimestamp, r.finalizerManager, r.deletionMessage = o.DeletionTimestamp, in.intern(o.FinalizerManager),
		in.intern(o.DeletionMessage)
	for _, f := range o.Finalizers {
		r.finalizers = append(r.finalizers, in.intern(f))
	}
	for _, k := range o.KeptFields {
		k.Path, k.At = in.intern(k.Path), in.intern(k.At)
		k.Value = slices.Clone(k.Value)
		r.keptFields = append(r.keptFields, k)
	}
	r.serves, r.reported, r.result = o.Serves, in.intern(string(o.Reported)), string(o.Result)
	if r.uid != "" || r.resourceVersion != "" || !r.deletionTimestamp.IsZero() || r.deletionMessage != "" ||
		r.finalizers != nil || r.keptFields != nil || r.serves != nil || r.reported != "" || r.result != "" {
		e.rare = &r
	}
	return e
}

func (e *entry) unpack(gk schema.GroupKind, n objectKey) Object {
	o := Object{
		Ref:           stacks.Ref{Group: gk.Group, Kind: gk.Kind, Namespace: n.namespace, Name: n.name},
		Version:       e.version,
		UID:           e.UID(),
		OwnedHash:     base64.RawURLEncoding.EncodeToString(e.ownedHash[:]),
		Readiness:     e.readiness,
		Message:       e.message,
		Finished:      e.is(flagFinished),
		Succeeded:     e.is(flagSucceeded),
		Deleting:      e.is(flagDeleting),
		OtherManager:  e.otherManager,
		LabelLost:     e.is(flagLabelLost),
		Adopted:       e.is(flagAdopted),
		Protected:     e.is(flagProtected),
		Suspended:     e.is(flagSuspended),
		TrackedByTool: e.is(flagTrackedByTool),
		KeptByHelm:    e.is(flagKeptByHelm),

		KeptWhenPruned: e.is(flagKeptWhenPruned), KeptWhenDeleted: e.is(flagKeptWhenDeleted),
		ResultRecorded: e.is(flagResultRecorded),
	}
	if e.resourceVersion != 0 {
		o.ResourceVersion = strconv.FormatUint(e.resourceVersion, 10)
	}
	if e.is(flagReplicas) {
		o.OwnedHash += replicasSuffix
	}
	if !e.is(flagMarkLost) {
		o.Mark = Mark{Owner: e.owner, ID: o.Ref.ID()}
	}
	if r := e.rare; r != nil {
		if r.resourceVersion != "" {
			o.ResourceVersion = r.resourceVersion
		}
		o.DeletionTimestamp, o.FinalizerManager, o.DeletionMessage = r.deletionTimestamp, r.finalizerManager,
			r.deletionMessage
		o.Finalizers = slices.Clone(r.finalizers)
		o.Serves = r.serves
		if r.reported != "" {
			o.Reported = json.RawMessage(r.reported)
		}
		if r.result != "" {
			o.Result = json.RawMessage(r.result)
		}
		o.KeptFields = slices.Clone(r.keptFields)
	}
	return o
}

// differsForOwner reports whether two entries differ in a field that an owner acts on, or that it
// reports during a removal. Other messages do not count, and neither does the resource version,
// which every heartbeat changes.
func (e *entry) differsForOwner(b *entry) bool {
	const acted = flagFinished | flagDeleting | flagLabelLost | flagMarkLost | flagReplicas | flagProtected |
		flagSuspended | flagTrackedByTool | flagKeptByHelm | flagKeptWhenPruned | flagKeptWhenDeleted |
		flagResultRecorded
	if e.UID() != b.UID() || e.ownedHash != b.ownedHash || e.readiness != b.readiness ||
		e.flags&acted != b.flags&acted || e.owner != b.owner {
		return true
	}
	er, br := cmp.Or(e.rare, &noRareFields), cmp.Or(b.rare, &noRareFields)
	return er.deletionMessage != br.deletionMessage || er.result != br.result || er.reported != br.reported ||
		!slices.Equal(er.finalizers, br.finalizers) || !er.serves.Equal(br.serves) ||
		!slices.EqualFunc(er.keptFields, br.keptFields, KeptField.equal)
}

func (k KeptField) equal(b KeptField) bool {
	return k.Path == b.Path && k.At == b.At && k.Ours == b.Ours && k.Others == b.Others && k.Withheld == b.Withheld &&
		string(k.Value) == string(b.Value)
}

// estimatedBytes estimates the memory of an entry, including its slot in the map.
func (e *entry) estimatedBytes(n objectKey) int {
	b := int(unsafe.Sizeof(*e)) + (int(unsafe.Sizeof(n))+8)*8/7 + len(n.name)
	if r := e.rare; r != nil {
		b += int(unsafe.Sizeof(*r)) + len(r.uid) + len(r.resourceVersion) + len(r.finalizers)*16 + len(r.reported) +
			len(r.result)
		for _, k := range r.keptFields {
			b += int(unsafe.Sizeof(k)) + len(k.Value)
		}
	}
	return b
}

// parseResourceVersion returns a resource version as a number; 0 if it is not a number.
func parseResourceVersion(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// parseUUID accepts only the form that uuid.UUID.String returns.
func parseUUID(s string) (uuid.UUID, bool) {
	u, err := uuid.Parse(s)
	return u, err == nil && u.String() == s
}

// maxInterned is the maximum number of strings in an interner.
const maxInterned = 1 << 14

// interner makes equal strings share memory. When it is full, it starts with an empty map; strings
// that it returned before stay shared.
type interner struct {
	mu      sync.Mutex
	byValue map[string]string
}

func (in *interner) intern(s string) string {
	if s == "" {
		return ""
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if shared, ok := in.byValue[s]; ok {
		return shared
	}
	if in.byValue == nil || len(in.byValue) >= maxInterned {
		in.byValue = map[string]string{}
	}
	s = strings.Clone(s)
	in.byValue[s] = s
	return s
}
