package live

import (
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ksctl/gitops/stacks"
)

// name is the key of an object among those of its kind.
type name struct{ namespace, name string }

type flags uint16

const (
	flagDone flags = 1 << iota
	flagDeleting
	flagLabelLost
	// flagMarkLost: the mark no longer names this object. It stays stored under
	// the owner that it had.
	flagMarkLost
	// flagHinted: a watch or a list said that the object is gone, or that its
	// label is; a GET is to tell.
	flagHinted
	flagReplicas
	flagAdopted
	flagSucceeded
	flagProtected
	flagSuspended
	flagClaimed
)

// entry is an Object, packed: there may be tens of thousands.
type entry struct {
	uid     [16]byte
	rv      uint64
	version string
	owner   string
	message string
	other   string
	rare    *rare
	owned   [12]byte
	// round is the list that saw the object last.
	round uint32
	ready Readiness
	flags flags
}

// rare is what few objects have.
type rare struct {
	kept       []KeptField
	finalizers []string
	deletion   time.Time
	heldBy     string
	remains    string
	// uid and rv are set when they are not a UUID or a number.
	uid, rv string
}

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
	if e.uid == [16]byte{} {
		return ""
	}
	return types.UID(formatUUID(e.uid))
}

// pack does not set owner, which is the store's to know.
func pack(o *Object, in *interner) *entry {
	e := &entry{ready: o.Ready, version: in.get(o.Version), other: in.get(o.OtherManager), message: in.get(o.Message)}
	e.set(flagDone, o.Done)
	e.set(flagDeleting, o.Deleting)
	e.set(flagSucceeded, o.Succeeded)
	e.set(flagAdopted, o.Adopted)
	e.set(flagProtected, o.Protected)
	e.set(flagSuspended, o.Suspended)
	e.set(flagClaimed, o.Claimed)
	var r rare
	var ok bool
	if e.uid, ok = parseUUID(string(o.UID)); !ok {
		r.uid = strings.Clone(string(o.UID))
	}
	if e.rv = revision(o.ResourceVersion); e.rv == 0 || strconv.FormatUint(e.rv, 10) != o.ResourceVersion {
		r.rv = strings.Clone(o.ResourceVersion)
	}
	hash := o.Owned
	if len(hash) > ownedHash {
		e.set(flagReplicas, true)
		hash = hash[:ownedHash]
	}
	if b, err := base64.RawURLEncoding.DecodeString(hash); err == nil {
		copy(e.owned[:], b)
	}
	r.deletion, r.heldBy, r.remains = o.DeletionTimestamp, in.get(o.HeldBy), in.get(o.Remains)
	for _, f := range o.Finalizers {
		r.finalizers = append(r.finalizers, in.get(f))
	}
	for _, k := range o.Kept {
		k.Path = in.get(k.Path)
		k.Value = slices.Clone(k.Value)
		r.kept = append(r.kept, k)
	}
	if r.uid != "" || r.rv != "" || !r.deletion.IsZero() || r.remains != "" || r.finalizers != nil || r.kept != nil {
		e.rare = &r
	}
	return e
}

func (e *entry) unpack(gk schema.GroupKind, n name) Object {
	o := Object{
		Ref:          stacks.Ref{Group: gk.Group, Kind: gk.Kind, Namespace: n.namespace, Name: n.name},
		Version:      e.version,
		UID:          e.UID(),
		Owned:        base64.RawURLEncoding.EncodeToString(e.owned[:]),
		Ready:        e.ready,
		Message:      e.message,
		Done:         e.is(flagDone),
		Succeeded:    e.is(flagSucceeded),
		Deleting:     e.is(flagDeleting),
		OtherManager: e.other,
		LabelLost:    e.is(flagLabelLost),
		Adopted:      e.is(flagAdopted),
		Protected:    e.is(flagProtected),
		Suspended:    e.is(flagSuspended),
		Claimed:      e.is(flagClaimed),
	}
	if e.rv != 0 {
		o.ResourceVersion = strconv.FormatUint(e.rv, 10)
	}
	if e.is(flagReplicas) {
		o.Owned += holdsReplicas
	}
	if !e.is(flagMarkLost) {
		o.Mark = Mark{Owner: e.owner, ID: o.Ref.ID()}
	}
	if r := e.rare; r != nil {
		if r.rv != "" {
			o.ResourceVersion = r.rv
		}
		o.DeletionTimestamp, o.HeldBy, o.Remains = r.deletion, r.heldBy, r.remains
		o.Finalizers = slices.Clone(r.finalizers)
		o.Kept = slices.Clone(r.kept)
	}
	return o
}

// matters reports whether two entries differ in what an owner acts on, or says of a
// removal: not in other messages, and not in the resource version, which every
// heartbeat changes.
func (e *entry) matters(b *entry) bool {
	const acted = flagDone | flagDeleting | flagLabelLost | flagMarkLost | flagReplicas | flagProtected | flagSuspended | flagClaimed
	if e.UID() != b.UID() || e.owned != b.owned || e.ready != b.ready || e.flags&acted != b.flags&acted || e.owner != b.owner {
		return true
	}
	er, br := e.rare, b.rare
	if er == nil || br == nil {
		return er.matter() || br.matter()
	}
	return er.remains != br.remains || !slices.Equal(er.finalizers, br.finalizers) || !slices.EqualFunc(er.kept, br.kept, KeptField.equal)
}

func (r *rare) matter() bool {
	return r != nil && (r.kept != nil || r.finalizers != nil || r.remains != "")
}

func (k KeptField) equal(b KeptField) bool {
	return k.Path == b.Path && k.Ours == b.Ours && k.Others == b.Others && k.Withheld == b.Withheld && string(k.Value) == string(b.Value)
}

// bytes estimates what an entry takes, its place in the map included.
func (e *entry) bytes(n name) int {
	b := int(unsafe.Sizeof(*e)) + (int(unsafe.Sizeof(n))+8)*8/7 + len(n.name)
	if r := e.rare; r != nil {
		b += int(unsafe.Sizeof(*r)) + len(r.uid) + len(r.rv) + len(r.finalizers)*16
		for _, k := range r.kept {
			b += int(unsafe.Sizeof(k)) + len(k.Value)
		}
	}
	return b
}

// revision is a resource version as a number; 0 if it is none.
func revision(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// parseUUID accepts only the form that formatUUID writes.
func parseUUID(s string) (u [16]byte, ok bool) {
	if len(s) != 36 {
		return u, false
	}
	var digits [32]byte
	n := 0
	for i := range len(s) {
		switch c := s[i]; {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return u, false
			}
		case '0' <= c && c <= '9' || 'a' <= c && c <= 'f':
			digits[n] = c
			n++
		default:
			return u, false
		}
	}
	_, err := hex.Decode(u[:], digits[:])
	return u, err == nil
}

func formatUUID(u [16]byte) string {
	var b [36]byte
	hex.Encode(b[:8], u[:4])
	b[8] = '-'
	hex.Encode(b[9:13], u[4:6])
	b[13] = '-'
	hex.Encode(b[14:18], u[6:8])
	b[18] = '-'
	hex.Encode(b[19:23], u[8:10])
	b[23] = '-'
	hex.Encode(b[24:], u[10:])
	return string(b[:])
}

// maxInterned bounds the strings that an interner shares.
const maxInterned = 1 << 14

// interner makes equal strings share memory. A full one starts anew: strings
// that it gave out stay shared.
type interner struct {
	mu      sync.Mutex
	strings map[string]string
}

func (in *interner) get(s string) string {
	if s == "" {
		return ""
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if shared, ok := in.strings[s]; ok {
		return shared
	}
	if in.strings == nil || len(in.strings) >= maxInterned {
		in.strings = map[string]string{}
	}
	s = strings.Clone(s)
	in.strings[s] = s
	return s
}
