package helm

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"
)

// beginFunc and endFunc are the functions that instrument calls at the beginning and at the end of
// every template file. They render nothing.
const (
	beginFunc = "ksctlBegin"
	endFunc   = "ksctlEnd"
)

// Limits of single calls, whose output could otherwise be much larger than their input.
const (
	maxRandom = 1 << 16
	maxLoop   = 1_000_000
	maxRepeat = 16 << 20
)

// refusal says what the output of a function depends on, and what to do instead.
type refusal struct{ dependsOn, advice string }

// refusedFuncs are the functions that templates must not call under generated.Refuse.
var refusedFuncs = map[string]refusal{}

// randomRefusal is that of all other functions, under Generation.RefuseRandom.
var randomRefusal = refusal{"random numbers", "set the value that it replaces, or render the chart as a helm " +
	"component of the stack, which keeps what charts generate"}

func init() {
	for _, kind := range []struct {
		refusal
		functions []string
	}{
		{refusal{"the clock", "set a fixed value"},
			[]string{"now", "ago", "date", "dateInZone", "date_in_zone", "htmlDate", "htmlDateInZone",
				"durationRound"}},
		{refusal{"a new key", "use an existing Secret, or let cert-manager issue the certificate"}, []string{
			"genPrivateKey", "genCA", "genCAWithKey", "genSelfSignedCert", "genSelfSignedCertWithKey", "genSignedCert",
			"genSignedCertWithKey"}},
		{refusal{"a random salt", "compute the result beforehand and set it as a value from a Secret"},
			[]string{"bcrypt", "htpasswd", "encryptAES"}},
	} {
		for _, name := range kind.functions {
			refusedFuncs[name] = kind.refusal
		}
	}
}

// funcMap returns replacements for Helm's template functions: with the same stored values, the same
// input renders the same output, each time and on each machine.
func (g *generator) funcMap() template.FuncMap {
	m := template.FuncMap{
		beginFunc:      g.begin,
		endFunc:        g.end,
		"lookup":       g.lookup,
		"randAlphaNum": g.randString("randAlphaNum", alphanumeric),
		"randAlpha":    g.randString("randAlpha", letters),
		"randNumeric":  g.randString("randNumeric", digits),
		"randAscii":    g.randString("randAscii", printable()),
		"randBytes":    g.randBytes,
		"randInt":      g.randInt,
		"shuffle":      g.shuffle,
		"uuidv4":       g.uuid,
		"keys":         sortedKeys,
		"values":       sortedValues,
		"repeat":       repeat,
		"until":        func(n int) ([]int, error) { return untilStep(0, n, cmp.Compare(n, 0)) },
		"untilStep":    untilStep,
	}
	maps.Copy(m, g.dates())
	maps.Copy(m, g.credentialFuncs())
	return m
}

const (
	digits       = "0123456789"
	letters      = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	alphanumeric = letters + digits
)

func printable() string {
	var b strings.Builder
	for c := byte(' '); c <= '~'; c++ {
		b.WriteByte(c)
	}
	return b.String()
}

func randomString(source *rand.ChaCha8, count int, alphabet string) string {
	random := rand.New(source)
	out := make([]byte, count)
	for i := range out {
		out[i] = alphabet[random.IntN(len(alphabet))]
	}
	return string(out)
}

func randomBytes(source *rand.ChaCha8, n int) []byte {
	out := make([]byte, n)
	_, _ = source.Read(out)
	return out
}

func (g *generator) randString(name, alphabet string) func(int) (string, error) {
	return func(count int) (string, error) {
		return g.random(name, strconv.Itoa(count), false, func(source *rand.ChaCha8) (string, error) {
			if count < 0 || count > maxRandom {
				return "", fmt.Errorf("%s makes at most %d characters", name, maxRandom)
			}
			return randomString(source, count, alphabet), nil
		})
	}
}

func (g *generator) randBytes(count int) (string, error) {
	return g.random("randBytes", strconv.Itoa(count), false, func(source *rand.ChaCha8) (string, error) {
		if count < 0 || count > maxRandom {
			return "", fmt.Errorf("randBytes makes at most %d bytes", maxRandom)
		}
		return base64.StdEncoding.EncodeToString(randomBytes(source, count)), nil
	})
}

func (g *generator) randInt(low, high int) (int, error) {
	text, err := g.random("randInt", fmt.Sprintf("%d %d", low, high), false,
		func(source *rand.ChaCha8) (string, error) {
			if high <= low {
				return "", fmt.Errorf("randInt needs a range, but %d is not below %d", low, high)
			}
			return strconv.Itoa(low + rand.New(source).IntN(high-low)), nil
		})
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

func (g *generator) shuffle(s string) (string, error) {
	return g.random("shuffle", s, true, func(source *rand.ChaCha8) (string, error) {
		runes := []rune(s)
		rand.New(source).Shuffle(len(runes), func(i, j int) { runes[i], runes[j] = runes[j], runes[i] })
		return string(runes), nil
	})
}

func (g *generator) uuid() (string, error) {
	return g.random("uuidv4", "", false, func(source *rand.ChaCha8) (string, error) {
		b := randomBytes(source, 16)
		b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
		return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]), nil
	})
}

// dates returns Helm's date functions in UTC. What would use the clock uses now.
func (g *generator) dates() template.FuncMap {
	format := func(function, layout string, at any, zone string) string {
		t, ok := toTime(at)
		if !ok {
			t = g.now(function)
		}
		loc, err := time.LoadLocation(zone)
		if err != nil || zone == "Local" {
			loc = time.UTC
		}
		return t.In(loc).Format(layout)
	}
	parse := func(layout, s string) (time.Time, error) { return time.ParseInLocation(layout, s, time.UTC) }
	return template.FuncMap{
		"now":  func() time.Time { return g.now("now") },
		"ago":  g.ago,
		"date": func(layout string, at any) string { return format("date", layout, at, "UTC") },
		"dateInZone": func(layout string, at any, zone string) string {
			return format("dateInZone", layout, at, zone)
		},
		"date_in_zone": func(layout string, at any, zone string) string {
			return format("date_in_zone", layout, at, zone)
		},
		"htmlDate":       func(at any) string { return format("htmlDate", time.DateOnly, at, "UTC") },
		"htmlDateInZone": func(at any, zone string) string { return format("htmlDateInZone", time.DateOnly, at, zone) },
		"toDate":         func(layout, s string) time.Time { t, _ := parse(layout, s); return t },
		"mustToDate":     parse,
		"durationRound":  g.durationRound,
	}
}

// ago returns the duration since a time.
func (g *generator) ago(at any) string {
	t, ok := toTime(at)
	now := g.now("ago")
	if !ok {
		t = now
	}
	return now.Sub(t).Round(time.Second).String()
}

func toTime(at any) (time.Time, bool) {
	switch at := at.(type) {
	case time.Time:
		return at, true
	case *time.Time:
		if at != nil {
			return *at, true
		}
	case int64:
		return time.Unix(at, 0), true
	case int:
		return time.Unix(int64(at), 0), true
	case int32:
		return time.Unix(int64(at), 0), true
	}
	return time.Time{}, false
}

// durationRound is Helm's durationRound. It takes a time, too: the duration since then.
func (g *generator) durationRound(v any) string {
	var d time.Duration
	switch v := v.(type) {
	case string:
		d, _ = time.ParseDuration(v)
	case int64:
		d = time.Duration(v)
	case time.Time:
		d = g.now("durationRound").Sub(v)
	}
	d = d.Abs()
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{
		{365 * 24 * time.Hour, "y"}, {30 * 24 * time.Hour, "mo"}, {24 * time.Hour, "d"},
		{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"},
	} {
		if d > unit.length {
			return strconv.FormatInt(int64(d/unit.length), 10) + unit.name
		}
	}
	return "0s"
}

// sortedKeys is Helm's keys, but sorted.
func sortedKeys(dicts ...map[string]any) []string {
	out := []string{}
	for _, d := range dicts {
		out = append(out, slices.Sorted(maps.Keys(d))...)
	}
	return out
}

// sortedValues is Helm's values, but sorted by key.
func sortedValues(dict map[string]any) []any {
	out := []any{}
	for _, k := range sortedKeys(dict) {
		out = append(out, dict[k])
	}
	return out
}

func repeat(count int, s string) (string, error) {
	if count < 0 || s != "" && count > maxRepeat/len(s) {
		return "", fmt.Errorf("repeat makes at most %d bytes", maxRepeat)
	}
	return strings.Repeat(s, count), nil
}

func untilStep(start, stop, step int) ([]int, error) {
	out := []int{}
	if step == 0 {
		return out, nil
	}
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if len(out) >= maxLoop {
			return nil, fmt.Errorf("until makes at most %d numbers", maxLoop)
		}
		out = append(out, i)
	}
	return out, nil
}
