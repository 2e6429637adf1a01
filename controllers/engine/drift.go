package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/engine/plan"
	"github.com/ksctl/gitops/controllers/live"
	"github.com/ksctl/gitops/stacks"
)

// An object is corrected at most maxCorrections times within correctionWindow.
const (
	maxCorrections   = 3
	correctionWindow = time.Minute
)

// corrections has the times at which the drift of an object was corrected.
type corrections struct{ ownerMap[[]time.Time] }

// add records a correction.
func (c *corrections) add(owner, id string, now time.Time) {
	c.record(owner, id, append(recent(c.get(owner, id), now), now))
}

// tooMany is true when an object was corrected maxCorrections times within correctionWindow.
func (c *corrections) tooMany(owner, id string, now time.Time) bool {
	return len(recent(c.get(owner, id), now)) >= maxCorrections
}

// recent returns the corrections within correctionWindow.
func recent(corrections []time.Time, now time.Time) []time.Time {
	for len(corrections) > 0 && (now.Sub(corrections[0]) >= correctionWindow || clockSetBack(now, corrections[0])) {
		corrections = corrections[1:]
	}
	return corrections
}

// An object whose content was created maxRecreations times within recreationWindow, and deleted by
// us in between, is not created again before the interval of its owner: two parts of
// the desired state contradict each other.
const (
	maxRecreations   = 5
	recreationWindow = 10 * time.Minute
)

// recreation is the history of an object that we deleted.
type recreation struct {
	// contentHash is the hash of the content that was deleted last.
	contentHash string
	// created are the times at which this content was created, the last maxRecreations of them.
	created []time.Time
	// deletedAt is the time of the last deletion.
	deletedAt time.Time
	// looping is true from the time at which there were too many. It ends when the object is left
	// alone for recreationWindow, or gets other content.
	looping bool
}

// recreations has the history of the objects of each owner that we deleted.
type recreations struct{ ownerMap[recreation] }

// recordDeletion records that we deleted an object with this content.
func (r *recreations) recordDeletion(owner, id, contentHash string, now time.Time) {
	x := r.get(owner, id)
	livedLong := len(x.created) > 0 && now.Sub(x.created[len(x.created)-1]) >= recreationWindow
	if x.contentHash != contentHash || livedLong {
		x = recreation{contentHash: contentHash}
	}
	x.deletedAt = now
	r.record(owner, id, x)
}

// prune drops the history of objects that were not deleted recently.
func (r *recreations) prune(owner string, now time.Time) {
	r.deleteFunc(owner, func(_ string, x recreation) bool {
		return !x.looping && now.Sub(x.deletedAt) >= recreationWindow
	})
}

// recordCreation records that an object was created with this content. Objects that we never
// deleted do not count.
func (r *recreations) recordCreation(owner, id, contentHash string, now time.Time) {
	x := r.get(owner, id)
	if x.contentHash != contentHash || contentHash == "" {
		r.reset(owner, id)
		return
	}
	x.created = append(slices.Clone(x.created), now)
	if n := len(x.created) - maxRecreations; n >= 0 {
		x.created = x.created[n:]
		x.looping = x.looping || now.Sub(x.created[0]) < recreationWindow
	}
	r.record(owner, id, x)
}

// nextCreation returns the time at which content that was created and deleted too often may be
// created again, one interval after its last creation; zero for other content.
func (r *recreations) nextCreation(owner, id, contentHash string, interval time.Duration) time.Time {
	x := r.get(owner, id)
	if !x.looping || x.contentHash != contentHash {
		return time.Time{}
	}
	return x.created[len(x.created)-1].Add(interval)
}

// ContestedError is the error of an object that another writer, or another part of the desired
// state, keeps changing.
type ContestedError struct {
	Ref stacks.Ref
	// Recreated is true for an object that its owner kept creating and deleting.
	Recreated bool
	// By is the field manager of the other writer; empty when it is unknown.
	By string
	// Fields are the fields that other writers changed; none when they are unknown.
	Fields []live.LostField
	// RetryAt is the time of the next correction.
	RetryAt time.Time
}

func (e *ContestedError) Error() string {
	if e.Recreated {
		return fmt.Sprintf("%s was created and deleted %d times in 10 minutes with the same content, and is created "+
			"again at %s: find the install or the KsctlRemove that contradicts its stack",
			e.Ref, maxRecreations, e.RetryAt.UTC().Format(time.RFC3339))
	}
	corrected := fmt.Sprintf("corrected %d times in a minute, left alone until %s; to accept these changes, ",
		maxCorrections, e.RetryAt.UTC().Format(time.TimeOnly))
	if len(e.Fields) == 0 {
		return fmt.Sprintf("%s keeps being changed by %s: %slist the fields in spec.drift.ignore", e.Ref,
			cmp.Or(e.By, "another writer"), corrected)
	}
	fields, rule := e.describeFields()
	return fmt.Sprintf("%s keeps being changed: %s; %sadd to spec.drift.ignore: %s", e.Ref, fields, corrected, rule)
}

// maxContestedFields is the number of fields that a message names.
const maxContestedFields = 5

// describeFields returns the first fields with their managers, and the rule that ignores these.
func (e *ContestedError) describeFields() (fields string, rule []byte) {
	r := appsv1.IgnoreRule{Target: &appsv1.IgnoreTarget{Group: e.Ref.Group, Kind: e.Ref.Kind,
		Namespace: e.Ref.Namespace, Name: e.Ref.Name}}
	var named []string
	for _, f := range e.Fields[:min(len(e.Fields), maxContestedFields)] {
		r.Paths = append(r.Paths, f.Path)
		if len(f.Managers) == 0 {
			named = append(named, f.Path+" is removed")
		} else {
			named = append(named, f.Path+" by "+strings.Join(f.Managers, " and "))
		}
	}
	if more := len(e.Fields) - len(named); more > 0 {
		named = append(named, fmt.Sprintf("and %d more", more))
	}
	rule, err := json.Marshal(r) // JSON is YAML, too
	if err != nil {
		panic(err) // strings always marshal
	}
	return strings.Join(named, ", "), rule
}

// contestedFields returns the fields of an object that others changed; none if that is unknown. It
// costs a GET.
func (a *executor) contestedFields(ctx context.Context, act *plan.Action) []live.LostField {
	it := act.Item
	if a.client == nil || act.Live == nil || it.Mapping == nil {
		return nil
	}
	u, err := a.resource(it).Get(ctx, it.Name, metav1.GetOptions{})
	if err != nil || u.GetUID() != act.Live.UID {
		return nil
	}
	manifest, err := a.owner.Manifest(ctx, it)
	if err != nil {
		return nil
	}
	var obj map[string]any
	if err := utiljson.Unmarshal(manifest, &obj); err != nil {
		return nil
	}
	foldStringData(it, obj)
	kept, err := keptFields(u, it.Ignore)
	if err == nil {
		_, err = mergeKeptFields(obj, kept)
	}
	if err != nil {
		return nil
	}
	return live.LostFields(u, obj)
}

// isCorrection is true for an action that reverts a change of another writer.
func isCorrection(act *plan.Action) bool {
	return act.Reason == plan.ReasonDrifted || act.Reason == plan.ReasonMissing
}

// contested returns the error of an action that was repeated too often recently; nil for another.
func (a *executor) contested(act *plan.Action, now time.Time) *ContestedError {
	e, interval := a.engine, max(a.retry.ContestedInterval, correctionWindow)
	if act.Verb == plan.VerbCreate && act.Item.Hook == nil {
		if next := e.recreations.nextCreation(a.ownerKey, act.Entry.ID, act.Item.ContentHash,
			interval); now.Before(next) {
			return &ContestedError{Ref: act.Item.Ref, Recreated: true, RetryAt: next}
		}
	}
	if isCorrection(act) && e.corrections.tooMany(a.ownerKey, act.Entry.ID, now) {
		return &ContestedError{Ref: act.Item.Ref, RetryAt: now.Add(interval)}
	}
	return nil
}

// backOffContested backs off the objects of a plan that were corrected, or created again, too often
// recently. It returns true if there are any: the plan has to be made again.
func (a *executor) backOffContested(ctx context.Context, p *plan.Plan) bool {
	e, now, found := a.engine, a.engine.clock.Now(), false
	for i := range p.Actions {
		act := &p.Actions[i]
		err := a.contested(act, now)
		if err == nil {
			continue
		}
		found = true
		if act.Live != nil {
			err.By = act.Live.OtherManager
		}
		if act.Reason == plan.ReasonDrifted && !err.Recreated {
			err.Fields = a.contestedFields(ctx, act)
		}
		e.backoffs.record(a.ownerKey, act.Entry.ID,
			backoff{start: now, retryAt: err.RetryAt, contentHash: act.Item.ContentHash, err: err})
		a.report.Contested = append(a.report.Contested,
			Change{Verb: plan.VerbUpdate, Reason: plan.ReasonDrifted, Ref: act.Item.Ref, Message: err.Error()})
	}
	return found
}
