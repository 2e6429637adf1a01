package scriptsapi

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
)

// maxModules is the maximum number of modules of a script: that of URLs in a WorkerDeployment.
const maxModules = 64

// maxOverhead is how much larger the body of an upload can be than its parts.
const maxOverhead = 1 << 20

// uploadLimits bound an upload.
type uploadLimits struct {
	// file and total are the maximum size of a file and of all files, in bytes.
	file, total int64
	// maxDate is the latest compatibility date.
	maxDate string
}

// upload is a script with its metadata. The first module handles requests.
type upload struct {
	metadata *metadata
	modules  []module
}

// rawPart is a part of a multipart body.
type rawPart struct {
	name, contentType string
	content           []byte
}

// parseUpload reads a script from the body of a request: a multipart form as Cloudflare documents
// it, or a service worker alone.
func parseUpload(contentType string, body io.Reader, l uploadLimits) (*upload, error) {
	mediaType, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil, invalidf("the request has no valid Content-Type: use multipart/form-data")
	}
	switch mediaType {
	case "multipart/form-data":
		if params["boundary"] == "" {
			return nil, invalidf("the Content-Type of the request has no boundary: use multipart/form-data; boundary=…")
		}
		parts, err := readParts(multipart.NewReader(body, params["boundary"]), l)
		if err != nil {
			return nil, err
		}
		return newUpload(parts, l)
	case typeJavaScript, "text/javascript":
		content, err := readLimited(body, l.file, "the script")
		if err != nil {
			return nil, err
		}
		m, err := newMain("script.js", typeJavaScript, content, true)
		return &upload{metadata: &metadata{BodyPart: "script.js"}, modules: []module{m}}, err
	}
	return nil, invalidf("the request has the type %s: use multipart/form-data", clip(mediaType))
}

func readParts(r *multipart.Reader, l uploadLimits) ([]rawPart, error) {
	var parts []rawPart
	total := l.total
	for {
		// Not NextPart, which decodes the content of some parts.
		p, err := r.NextRawPart()
		if errors.Is(err, io.EOF) {
			return parts, nil
		}
		if err != nil {
			return nil, badBody(err)
		}
		name := p.FormName()
		switch {
		case name == "":
			return nil, invalidf("a part of the form has no name: set it in Content-Disposition")
		case len(parts) == maxModules+1: // and the metadata
			return nil, failf(http.StatusRequestEntityTooLarge, codeTooLarge, "the script has more than %d modules: "+
				"bundle them", maxModules)
		case slices.ContainsFunc(parts, func(o rawPart) bool { return normalizeName(o.name) == normalizeName(name) }):
			return nil, invalidf("part %q occurs twice: rename one of them", clip(name))
		}
		limit := l.file
		if name == "metadata" {
			limit = maxMetadata
		}
		content, err := readLimited(p, min(limit, total), "part "+clip(name))
		if err != nil {
			return nil, err
		}
		total -= int64(len(content))
		parts = append(parts, rawPart{name, p.Header.Get("Content-Type"), content})
	}
}

// readLimited reads at most limit bytes.
func readLimited(r io.Reader, limit int64, of string) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, badBody(err)
	}
	if int64(len(content)) > limit {
		return nil, failf(http.StatusRequestEntityTooLarge, codeTooLarge, "%s is too large: %d bytes are left for it",
			of, limit)
	}
	return content, nil
}

// badBody returns the answer to a body that can't be read.
func badBody(err error) error {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return failf(http.StatusRequestEntityTooLarge, codeTooLarge, "the request has more than %d bytes",
			tooLarge.Limit)
	}
	return &apiError{status: http.StatusBadRequest, code: codeInvalid, message: "the body of the request can't be read",
		cause: err}
}

// newUpload returns the upload of the parts of a form.
func newUpload(parts []rawPart, l uploadLimits) (*upload, error) {
	i := slices.IndexFunc(parts, func(p rawPart) bool { return p.name == "metadata" })
	if i < 0 {
		return nil, invalidf("the form has no part \"metadata\": add one with a JSON object that has main_module")
	}
	m, err := parseMetadata(parts[i].content, l.maxDate)
	if err != nil {
		return nil, err
	}
	u := &upload{metadata: m}
	main, found := normalizeName(m.main()), false
	for _, p := range slices.Delete(slices.Clone(parts), i, i+1) {
		isMain := normalizeName(p.name) == main
		var file module
		if isMain {
			file, err = newMain(p.name, p.contentType, p.content, m.BodyPart != "")
		} else {
			file, err = newModule(p.name, p.contentType, p.content, false)
		}
		switch {
		case err != nil:
			return nil, err
		case isMain:
			u.modules, found = slices.Insert(u.modules, 0, file), true
		default:
			u.modules = append(u.modules, file)
		}
	}
	if !found {
		return nil, invalidf("the form has no part %q, which the metadata names as the one that handles requests: "+
			"add it",
			clip(m.main()))
	}
	return u, u.check()
}

// newMain returns the module that handles requests.
func newMain(part, contentType string, content []byte, serviceWorker bool) (module, error) {
	if serviceWorker {
		m := module{name: normalizeName(part), contentType: typeJavaScript, content: content}
		parsed, _, err := mime.ParseMediaType(contentType)
		if err != nil || parsed != typeJavaScript && synonyms[parsed] != typeJavaScript {
			return m, invalidf("part %q, the body_part, has not the type %s: set its Content-Type", clip(part),
				typeJavaScript)
		}
		if !strings.HasSuffix(m.name, ".js") {
			m.name += ".js"
		}
		m.contentType = typeModule // the extension is the same
		err = m.check(part)
		m.contentType = typeJavaScript
		return m, err
	}
	m, err := newModule(part, contentType, content, true)
	if err == nil && m.contentType != typeModule && m.contentType != typeWASM {
		err = invalidf("part %q, the main_module, has the type %s: it must be %s, or %s for a WASI program", part,
			m.contentType, typeModule, typeWASM)
	}
	return m, err
}

// check returns an error if the modules are not one script.
func (u *upload) check() error {
	switch {
	case u.metadata.BodyPart != "" && len(u.modules) > 1:
		return invalidf("a service worker has one part, and %q is another one: use an ES module with main_module",
			u.modules[1].name)
	case u.modules[0].contentType == typeWASM && len(u.modules) > 1:
		return invalidf("a WASI program has one part, and %q is another one: use an ES module as main_module",
			u.modules[1].name)
	}
	slices.SortFunc(u.modules[1:], func(a, b module) int { return strings.Compare(a.name, b.name) })
	for i, m := range u.modules[1:] {
		if m.name == u.modules[0].name || i > 0 && m.name == u.modules[i].name {
			return invalidf("module %s occurs twice: rename one of them", m.name)
		}
	}
	return nil
}

// size returns the size of all modules.
func (u *upload) size() (size int) {
	for _, m := range u.modules {
		size += len(m.content)
	}
	return size
}
