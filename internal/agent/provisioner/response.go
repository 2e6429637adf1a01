package provisioner

import (
	"bytes"
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"unicode"
)

// Bounds of an answer. A cluster of five thousand nodes, the most that Kubernetes is made for, is
// a tenth of them.
const (
	// maxAnswer bytes are read.
	maxAnswer  = 4 << 20
	maxWorkers = 20_000
	// maxMessage and maxCode characters are kept of an error.
	maxMessage, maxCode = 1024, 128
)

// workerName is that of a machine: what a label can hold, since it is the beginning of a Node's name.
var workerName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,251}[a-z0-9])?$`)

// nodeName is that of a Node.
var nodeName = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$`)

// Parse reads an answer: the workers, sorted by their index, or the error that it has, which is
// an *Error. One that breaks the contract is a *ProgramError.
func Parse(data []byte) ([]Worker, error) {
	if len(data) > maxAnswer {
		return nil, broken(TooLong, nil, "answered more than %d bytes", maxAnswer)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, broken(Silent, nil, "ended well and answered nothing")
	}
	var a Answer
	// The decoder's own words may quote what was written, which may be anything.
	if err := json.Unmarshal(data, &a); err != nil {
		return nil, broken(Garbled, err, "answered what is not one JSON document")
	}
	if a.APIVersion != APIVersion {
		return nil, broken(Garbled, nil, "answered in version %.60q; %s is understood", a.APIVersion, APIVersion)
	}
	if a.Error != nil {
		return nil, a.Error.clean()
	}
	if err := a.check(); err != nil {
		return nil, err
	}
	return a.Workers, nil
}

// check sorts the workers of an answer and says what is wrong with them.
func (a *Answer) check() error {
	if len(a.Workers) > maxWorkers {
		return broken(Garbled, nil, "answered with %d workers; %d are the most", len(a.Workers), maxWorkers)
	}
	slices.SortFunc(a.Workers, func(x, y Worker) int { return cmp.Compare(x.Index, y.Index) })
	names := map[string]bool{}
	for i, w := range a.Workers {
		switch {
		case i > 0 && a.Workers[i-1].Index == w.Index:
			return broken(Garbled, nil, "answered with two workers at %d", w.Index)
		case w.Index >= maxWorkers:
			return broken(Garbled, nil, "answered with a worker at %d; %d is the last", w.Index, maxWorkers-1)
		case !workerName.MatchString(w.Name):
			return broken(Garbled, nil, "answered with a worker at %d whose name can't be that of a machine: %.60q", w.Index, w.Name)
		case names[w.Name]:
			return broken(Garbled, nil, "answered with two workers named %s", w.Name)
		case w.Node != "" && !nodeName.MatchString(w.Node):
			return broken(Garbled, nil, "answered with a worker at %d whose node can't have the name %.60q", w.Index, w.Node)
		}
		names[w.Name] = true
	}
	return nil
}

// clean is the error as it may be shown: in one line, and not long. A class that is not known
// here is Other.
func (e *Error) clean() *Error {
	out := &Error{Code: line(e.Code, maxCode), Class: e.Class, Message: line(e.Message, maxMessage)}
	if out.Class != OutOfResources {
		out.Class = Other
	}
	out.Message = cmp.Or(out.Message, "the provisioner says no more")
	return out
}

// line is a text in one line, of so many characters at most.
func line(s string, most int) string {
	var out []rune
	for _, r := range s {
		if len(out) == most {
			break
		}
		if !unicode.IsPrint(r) {
			r = ' '
		}
		out = append(out, r)
	}
	return string(out)
}
