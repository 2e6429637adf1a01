package helm

import (
	"cmp"
	"crypto/hmac"
	cryptorand "crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/ksctl/gitops/stacks/generated"
	"github.com/ksctl/gitops/stacks/internal/manifest"
	"github.com/ksctl/gitops/stacks/problem"
)

// Generation is how the templates of one component generate values.
type Generation struct {
	Policy generated.Policy
	// RefuseRandom refuses random strings, too, under generated.Refuse.
	RefuseRandom bool
	// Stored are the values of earlier renders.
	Stored *generated.Values
	// last are the values of the last render, if Stored has them at other calls; see Chart.Render.
	last *generated.Values
	// Derive makes random strings as under generated.Refuse, and keeps them.
	Derive bool
	// Now is the time for templates that read the clock for the first time.
	Now time.Time
}

// generator makes the values that templates generate.
type generator struct {
	Generation
	// chart is the name of the chart.
	chart string
	// seed of values that are derived.
	seed []byte
	// inputs is the keyed hash of the chart and its values.
	inputs string

	// out has the stored values and the new ones. used are the calls of this render.
	out  *generated.Values
	used map[string]bool
	// changed are the calls with other arguments than those that the value was generated for.
	changed map[string]string
	// executions are the template files that are being executed, the innermost last.
	executions []*execution
	// stream is what random strings are derived from under generated.Refuse: each execution of a
	// file begins it again.
	stream *rand.ChaCha8
	// derived and refused are the functions that each file called under generated.Refuse.
	derived, refused map[string][]string
}

// execution is one execution of a template file.
type execution struct {
	// file is the name in the engine, which begins with the name of the chart.
	file string
	// calls counts the calls of each function.
	calls map[string]int
}

func newGenerator(g Generation, chart string, seed []byte, inputs string) *generator {
	out := &generator{Generation: g, chart: chart, seed: seed, inputs: inputs, out: g.Stored.Clone(),
		used: map[string]bool{}, changed: map[string]string{},
		derived: map[string][]string{}, refused: map[string][]string{}}
	out.out.Lookups = nil // gets those of this render
	if out.last == nil {
		out.last = g.Stored
	}
	out.begin("")
	return out
}

// begin starts the execution of a template file. An include of a file is an execution of its own,
// so that it renders the same each time.
func (g *generator) begin(file string) string {
	g.executions = append(g.executions, &execution{file: file, calls: map[string]int{}})
	g.stream = g.derive(file)
	return ""
}

// end ends what begin started.
func (g *generator) end() string {
	g.executions = g.executions[:len(g.executions)-1]
	return ""
}

func (g *generator) current() *execution { return g.executions[len(g.executions)-1] }

// derive returns a source of random numbers that is the same in each render.
func (g *generator) derive(name string) *rand.ChaCha8 {
	mac := hmac.New(sha256.New, g.seed)
	mac.Write([]byte(name))
	return rand.NewChaCha8([32]byte(mac.Sum(nil)))
}

// note records that the current file calls a function.
func (g *generator) note(calls map[string][]string, function string) {
	file := g.current().file
	if !slices.Contains(calls[file], function) {
		calls[file] = append(calls[file], function)
	}
}

// random returns what a random function makes. arguments identify the call if byArguments is set;
// otherwise the value stays when they change.
func (g *generator) random(function, arguments string, byArguments bool,
	generate func(*rand.ChaCha8) (string, error)) (string, error) {
	derived := ""
	if g.Policy == generated.Refuse || g.Derive {
		var err error
		if derived, err = generate(g.stream); err != nil || g.Policy == generated.Refuse {
			calls := g.derived
			if g.RefuseRandom {
				calls = g.refused
			}
			g.note(calls, function)
			return derived, err
		}
	}
	v, err := g.value(function, arguments, byArguments, func(source *rand.ChaCha8) (generated.Value, error) {
		if g.Derive {
			return generated.Value{Text: derived, Derived: true}, nil
		}
		text, err := generate(source)
		return generated.Value{Text: text}, err
	})
	return v.Text, err
}

// value returns the value of a call: the stored one, or a new one.
func (g *generator) value(function, arguments string, byArguments bool,
	generate func(*rand.ChaCha8) (generated.Value, error)) (generated.Value, error) {
	call := g.callName(function, arguments, byArguments)
	g.used[call] = true
	if v, stored := g.out.Calls[call]; stored {
		if !byArguments && v.Arguments != arguments {
			g.changed[call] = arguments
		}
		return v, nil
	}
	source := g.derive(call)
	if g.Policy == generated.Keep {
		var seed [32]byte
		_, _ = cryptorand.Read(seed[:]) // never fails
		source = rand.NewChaCha8(seed)
	}
	v, err := generate(source)
	if err != nil {
		return v, err
	}
	if !byArguments {
		v.Arguments = arguments
	}
	g.out.Calls[call] = v
	return v, nil
}

// callName returns function#position@file, or function#position#hash@file.
func (g *generator) callName(function, arguments string, byArguments bool) string {
	e := g.current()
	call := function + "#" + strconv.Itoa(e.calls[function])
	e.calls[function]++
	if byArguments {
		call += "#" + g.out.Hash(arguments)
	}
	return call + "@" + strings.TrimPrefix(e.file, g.chart+"/")
}

// parseCall splits the name of a call. hash is empty if its arguments are not part of it.
func parseCall(call string) (function, hash, file string) {
	name, file, _ := strings.Cut(call, "@")
	function, position, _ := strings.Cut(name, "#")
	_, hash, _ = strings.Cut(position, "#")
	return function, hash, file
}

// now returns the time for templates. function reads it.
func (g *generator) now(function string) time.Time {
	switch g.Policy {
	case generated.Keep:
		if g.out.Clock == nil || g.out.Clock.For != g.inputs {
			g.out.Clock = &generated.Clock{Time: g.Now.UTC().Truncate(time.Second), For: g.inputs}
		}
		return g.out.Clock.Time
	case generated.Refuse:
		g.note(g.refused, function)
	case generated.Placeholders:
		g.out.Clock = &generated.Clock{Time: placeholderTime}
	}
	return placeholderTime
}

// lookup returns the stored answer to a query. Without one, it finds nothing, and the query is
// asked.
func (g *generator) lookup(apiVersion, kind, namespace, name string) (map[string]any, error) {
	query := generated.Query{APIVersion: apiVersion, Kind: kind, Namespace: namespace, Name: name}.String()
	if g.Policy != generated.Keep || strings.Contains(apiVersion+kind+namespace+name, " ") { // no object has it
		return map[string]any{}, nil
	}
	answer, known := g.Stored.Lookups[query]
	if !known || answer.For != g.inputs {
		answer = generated.Lookup{For: g.inputs, Asked: true}
	}
	if g.out.Lookups == nil {
		g.out.Lookups = map[string]generated.Lookup{}
	}
	g.out.Lookups[query] = answer
	found := map[string]any{}
	switch {
	case len(answer.Object) > 0:
	case name == "":
		return map[string]any{"items": []any{}}, nil
	default:
		return found, nil
	}
	return found, json.Unmarshal(answer.Object, &found)
}

// placeholderTime is the time that templates read without a clock.
var placeholderTime = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// place records where values are in Secrets. It returns the values that the last render had there,
// by the call that now returns another one, because a call was inserted before it, or removed: they
// must be rendered again with these. An empty value is to be generated again.
func (g *generator) place(objects []*manifest.Object) (moved map[string]generated.Value) {
	g.out.Places = g.places(objects)
	stays := map[string]bool{} // calls whose value is where it was
	for place, call := range g.out.Places {
		stays[call] = stays[call] || g.last.Places[place] == call
	}
	moved = map[string]generated.Value{}
	var sources []string
	for _, place := range slices.Sorted(maps.Keys(g.out.Places)) {
		was, call := g.last.Places[place], g.out.Places[place]
		v, known := g.last.Calls[was]
		if known && was != call && !stays[call] && isSameFunction(was, call) && v != g.out.Calls[call] {
			moved[call] = v
			sources = append(sources, was)
		}
	}
	for _, call := range sources {
		if _, filled := moved[call]; !filled && !stays[call] && g.out.Calls[call] == g.last.Calls[call] {
			moved[call] = generated.Value{}
		}
	}
	return moved
}

// isSameFunction reports whether two calls are of one function, and have the same arguments if
// these are part of their names.
func isSameFunction(a, b string) bool {
	function, hash, _ := parseCall(a)
	other, otherHash, _ := parseCall(b)
	return function == other && hash == otherHash
}

// move gives values to other calls. An empty value is forgotten.
func move(values *generated.Values, moved map[string]generated.Value) *generated.Values {
	out := values.Clone()
	for call, v := range moved {
		if out.Calls[call] = v; v == (generated.Value{}) {
			delete(out.Calls, call)
		}
	}
	return out
}

// maxUnused is the number of unused values that are kept, for a chart or values that come back.
const maxUnused = 100

// forgetUnused forgets the values that no call has anymore, if there are many.
func (g *generator) forgetUnused() {
	if len(g.out.Calls)-len(g.used) > maxUnused {
		maps.DeleteFunc(g.out.Calls, func(call string, _ generated.Value) bool { return !g.used[call] })
	}
}

// places returns the keys of Secrets whose whole value is one generated value, see
// generated.Values.Places.
func (g *generator) places(objects []*manifest.Object) map[string]string {
	calls := map[string]string{} // by value
	for call := range g.used {
		if text := g.out.Calls[call].Text; len(text) >= generated.ShortestRecognized {
			if _, twice := calls[text]; twice {
				call = ""
			}
			calls[text] = call
		}
	}
	out := map[string]string{}
	for _, o := range objects {
		if o.Group != "" || o.Kind != "Secret" {
			continue
		}
		for _, field := range []string{"data", "stringData"} {
			data, _, _ := unstructured.NestedStringMap(o.Value, field) //nolint:errcheck // the API server reports it
			for key, value := range data {
				if field == "data" {
					raw, err := base64.StdEncoding.DecodeString(value)
					if err != nil {
						continue
					}
					value = string(raw)
				}
				if call := calls[value]; call != "" {
					out[o.Namespace+"/"+o.Name+"/"+key] = call
				}
			}
		}
	}
	return out
}

// warnings are for the user.
func (g *generator) warnings(file func(string) string) []string {
	var out []string
	for name, functions := range g.derived { // name is the file's
		slices.Sort(functions)
		out = append(out, fmt.Sprintf("%s uses %s: what it makes is derived from the install and the chart, and "+
			"changes when the chart does; better give it a value",
			file(name), strings.Join(functions, ", ")))
	}
	for call, arguments := range g.changed {
		function, _, name := parseCall(call)
		out = append(out, fmt.Sprintf("%s: %s was called with %s before and now with %s: the value that was "+
			"generated before is kept",
			file(name), function, orNothing(g.out.Calls[call].Arguments), orNothing(arguments)))
	}
	slices.Sort(out)
	return out
}

func orNothing(arguments string) string {
	if arguments == "" {
		return "nothing"
	}
	return arguments
}

// refusal returns an error for each call of a function that is not allowed, or nil. find returns
// where the templates call a function that a file used.
func (g *generator) refusal(find func(function, file string) []problem.Error) error {
	var errs problem.Errors
	seen := map[string]bool{}
	for _, file := range slices.Sorted(maps.Keys(g.refused)) {
		for _, function := range slices.Sorted(slices.Values(g.refused[file])) {
			for _, e := range find(function, file) {
				why := cmp.Or(refusedFuncs[function], randomRefusal)
				e.Message = fmt.Sprintf("the template uses %s, which is not allowed: the function depends on %s, so "+
					"that each render would differ; %s", function, why.dependsOn, why.advice)
				if key := fmt.Sprintln(e.File, e.Line, function); !seen[key] {
					seen[key] = true
					errs.Add(&e)
				}
			}
		}
	}
	return errs.Err()
}
