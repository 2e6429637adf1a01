package scriptsapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/textproto"

	"github.com/ksctl/gitops/internal/workers/filestore"
)

// notFound is the answer for a script that does not exist.
func notFound(r *request) error {
	return failf(http.StatusNotFound, codeScriptNotFound, "workers.api.error.script_not_found: account %s has no "+
		"script %s", r.account, r.script)
}

// deployment returns the WorkerDeployment of the script of a request.
func (s *Server) deployment(r *request) (*deployment, error) {
	o, err := s.deployments.live(r.Context(), r.account, r.script)
	if err == nil && o == nil {
		err = notFound(r)
	}
	return o, err
}

// scriptResult is a script in an answer.
type scriptResult struct {
	ID         string `json:"id"`
	Tag        string `json:"tag"`
	Etag       string `json:"etag"`
	CreatedOn  string `json:"created_on"`
	ModifiedOn string `json:"modified_on"`
	HasModules bool   `json:"has_modules"`
	HasAssets  bool   `json:"has_assets"`
	Logpush    bool   `json:"logpush"`
	UsageModel string `json:"usage_model"`
	// CompatibilityDate is empty if the upload had none.
	CompatibilityDate string `json:"compatibility_date,omitempty"`
	// WorkerNumber is the port of the worker, which Cloudflare has not.
	WorkerNumber int64 `json:"worker_number"`
	// EntryPoint, Size and DeploymentID are those of an upload.
	EntryPoint   string `json:"entry_point,omitempty"`
	Size         int    `json:"size,omitempty"`
	DeploymentID string `json:"deployment_id,omitempty"`
}

func newScriptResult(o deployment) scriptResult {
	t := o.template()
	return scriptResult{ID: o.script(), Tag: o.tag(), Etag: t.etag(), CreatedOn: o.created(), ModifiedOn: o.modified(),
		HasModules: !o.isServiceWorker(), UsageModel: "standard", CompatibilityDate: t.CompatibilityDate,
		WorkerNumber: t.WorkerNumber}
}

func (s *Server) listScripts(r *request) (any, error) {
	all, err := s.deployments.list(r.Context(), r.account)
	if err != nil {
		return nil, err
	}
	out := list{}
	for _, o := range all {
		if o.GetDeletionTimestamp() == nil {
			out = append(out, newScriptResult(o))
		}
	}
	return out, nil
}

// reserve waits until another script can be in memory, and returns a function that ends that.
func (s *Server) reserve(ctx context.Context) (release func(), err error) {
	select {
	case s.scripts <- struct{}{}:
		return func() { <-s.scripts }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// receive reads the script of a request, which is in memory until release is called.
func (s *Server) receive(r *request) (u *upload, release func(), err error) {
	if release, err = s.reserve(r.Context()); err != nil {
		return nil, nil, err
	}
	body := http.MaxBytesReader(nil, r.Body, s.limits.total+maxMetadata+maxOverhead)
	if u, err = parseUpload(r.Header.Get("Content-Type"), body, s.limits); err != nil {
		release()
		return nil, nil, err
	}
	return u, release, nil
}

func (s *Server) putScript(r *request) (any, error) {
	u, release, err := s.receive(r)
	if err != nil {
		return nil, err
	}
	defer release()
	unlock := s.lock(r.account)
	defer unlock()
	s.collection.RLock()
	defer s.collection.RUnlock()
	rev, err := s.store(r.Context(), u)
	if err != nil {
		return nil, err
	}
	o, err := s.publish(r.Context(), r.account, r.script, rev)
	if err != nil {
		return nil, err
	}
	result := newScriptResult(*o)
	result.EntryPoint, result.Size, result.DeploymentID = rev.Files[0].Name, rev.Size, o.version()
	return answer{result, []note{{codeDeployed, fmt.Sprintf("the script is served at http://%s.%s.svc:%d when its "+
		"build is done: see WorkerDeployment %s/%s", r.account, s.opts.Namespace, result.WorkerNumber, s.opts.Namespace,
		o.GetName())}}}, nil
}

// store stores the files of an upload.
func (s *Server) store(ctx context.Context, u *upload) (*revision, error) {
	rev := &revision{Format: formatModules, Metadata: u.metadata, Size: u.size()}
	if u.metadata.BodyPart != "" {
		rev.Format = formatServiceWorker
	}
	for _, m := range u.modules {
		f, err := s.opts.Files.Put(ctx, m.name, m.content)
		if err != nil {
			return nil, fmt.Errorf("storing module %s: %w", m.name, err)
		}
		rev.Files = append(rev.Files, f)
	}
	return rev, nil
}

// publish makes a revision the one that a script runs. The Secret with its bindings exists before
// the WorkerDeployment that refers to it, which owns it then.
func (s *Server) publish(ctx context.Context, account, script string, rev *revision) (*deployment, error) {
	have, err := s.deployments.writable(ctx, account, script)
	if err != nil {
		return nil, err
	}
	id, err := rev.id(account, script)
	if err != nil {
		return nil, err
	}
	desired := desiredState{format: rev.Format, version: id, compatibilityDate: rev.Metadata.CompatibilityDate,
		scriptURLs: make([]string, len(rev.Files))}
	for i, f := range rev.Files {
		desired.scriptURLs[i] = s.opts.Files.URL(f)
	}
	all, err := s.mergeBindings(ctx, have, account, script, rev.Metadata)
	if err != nil {
		return nil, err
	}
	if all != nil {
		if desired.secretName, err = s.secrets.set(ctx, account, script, all, have); err != nil {
			return nil, err
		}
	}
	o, err := s.deployments.apply(ctx, account, script, desired)
	if err == nil && all != nil && have == nil {
		_, err = s.secrets.set(ctx, account, script, all, o)
	}
	return o, err
}

// mergeBindings returns the bindings of a script after an upload; nil if it has no Secret of this
// API. A Secret that has no keys any more stays: the worker still mounts it.
func (s *Server) mergeBindings(ctx context.Context, have *deployment, account, script string, m *metadata) (
	bindings, error) {
	if len(m.Bindings) == 0 && !s.secrets.uses(have) {
		return nil, nil
	}
	if err := s.secrets.checkUse(have, account, script); err != nil {
		return nil, err
	}
	current, err := s.secrets.get(ctx, have)
	if err != nil {
		return nil, err
	}
	return current.merge(m)
}

// deleteScript deletes a WorkerDeployment. The Secret with its bindings goes with it, when nothing
// mounts it any more: the WorkerDeployment owns it.
func (s *Server) deleteScript(r *request) (any, error) {
	unlock := s.lock(r.account)
	defer unlock()
	o, err := s.deployment(r)
	if err != nil {
		return nil, serviceError(r, err)
	}
	if err := s.deployments.delete(r.Context(), o); err != nil {
		return nil, err
	}
	return nil, s.versions.deleteAll(r.account, r.script)
}

// getScript returns the modules of a script as a form, and a service worker as it is.
func (s *Server) getScript(r *request) (any, error) {
	o, err := s.deployment(r)
	if err != nil {
		return nil, err
	}
	release, err := s.reserve(r.Context())
	if err != nil {
		return nil, err
	}
	defer release()
	t := o.template()
	header := http.Header{"Etag": {`"` + t.etag() + `"`}}
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for i, u := range t.ScriptURLs {
		f, ok := filestore.ParseURL(u)
		if !ok {
			return nil, failf(http.StatusNotFound, codeScriptNotFound,
				"script %s was not uploaded here: its files are those "+
					"of WorkerDeployment %s/%s", r.script, s.opts.Namespace, o.GetName())
		}
		content, err := s.opts.Files.Get(r.Context(), f)
		if errors.Is(err, filestore.ErrNotFound) {
			return nil, failf(http.StatusNotFound, codeScriptNotFound,
				"file %s of script %s is not stored here: upload the "+
					"script again", f.Name, r.script)
		}
		if err != nil {
			return nil, err
		}
		if i == 0 && o.isServiceWorker() {
			header.Set("Content-Type", typeJavaScript)
			return raw{header, content}, nil
		}
		part, err := form.CreatePart(textproto.MIMEHeader{
			"Content-Disposition": {fmt.Sprintf(`form-data; name=%q; filename=%q`, f.Name, f.Name)},
			"Content-Type":        {contentTypeOf(f.Name)}})
		if err == nil {
			_, err = part.Write(content)
		}
		if err != nil {
			return nil, err
		}
		if i == 0 {
			header.Set("Cf-Entrypoint", f.Name)
		}
	}
	if err := form.Close(); err != nil {
		return nil, err
	}
	header.Set("Content-Type", form.FormDataContentType())
	return raw{header, body.Bytes()}, nil
}
