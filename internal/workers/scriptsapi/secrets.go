package scriptsapi

import (
	"encoding/json"
	"net/http"
)

// secretResult is a secret in an answer, which never has its text.
type secretResult struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

func (s *Server) listSecrets(r *request) (any, error) {
	all, err := s.secretBindings(r)
	if err != nil {
		return nil, err
	}
	out := list{}
	for _, b := range all.sorted() {
		if b.Type == bindingSecret {
			out = append(out, secretResult{b.Name, b.Type})
		}
	}
	return out, nil
}

func (s *Server) secretBindings(r *request) (bindings, error) {
	o, err := s.deployment(r)
	if err != nil {
		return nil, err
	}
	return s.secrets.get(r.Context(), o)
}

// secret returns an error unless a script has a secret.
func (b bindings) secret(r *request) (secretResult, error) {
	name := r.PathValue("secret")
	have, ok := b[name]
	if !ok || have.Type != bindingSecret {
		return secretResult{}, failf(http.StatusNotFound, codeBindingNotFound, "script %s has no secret %q", r.script,
			clip(name))
	}
	return secretResult{have.Name, have.Type}, nil
}

func (s *Server) getSecret(r *request) (any, error) {
	all, err := s.secretBindings(r)
	if err != nil {
		return nil, err
	}
	return all.secret(r)
}

func (s *Server) putSecret(r *request) (any, error) {
	body := http.MaxBytesReader(nil, r.Body, maxMetadata)
	var b binding
	if err := json.NewDecoder(body).Decode(&b); err != nil {
		return nil, invalidf("the body is no JSON object with name, text and type")
	}
	if b.Type != bindingSecret {
		return nil, invalidf("the secret has the type %q: only %s is supported", clip(b.Type), bindingSecret)
	}
	if err := b.check(); err != nil {
		return nil, err
	}
	unlock := s.lock(r.account)
	defer unlock()
	return secretResult{b.Name, b.Type}, s.changeBindings(r, func(all bindings) error {
		if have, ok := all[b.Name]; ok && have.Type != bindingSecret {
			return invalidf("binding %s exists and is no secret: remove it from the script first", b.Name)
		}
		all[b.Name] = binding{Type: b.Type, Name: b.Name, Text: b.Text}
		return nil
	})
}

func (s *Server) deleteSecret(r *request) (any, error) {
	unlock := s.lock(r.account)
	defer unlock()
	return nil, s.changeBindings(r, func(all bindings) error {
		result, err := all.secret(r)
		delete(all, result.Name)
		return err
	})
}

// changeBindings changes the bindings of a script.
func (s *Server) changeBindings(r *request, change func(bindings) error) error {
	o, err := s.deployment(r)
	if err != nil {
		return err
	}
	if err := s.secrets.checkUse(o, r.account, r.script); err != nil {
		return err
	}
	all, err := s.secrets.get(r.Context(), o)
	if err != nil {
		return err
	}
	if err := change(all); err != nil {
		return err
	}
	if len(all) > maxBindings {
		return failf(http.StatusBadRequest, codeTooManyBindings, "the script has %d bindings: use at most %d", len(all),
			maxBindings)
	}
	name, err := s.secrets.set(r.Context(), r.account, r.script, all, o)
	if err != nil {
		return err
	}
	return s.deployments.setSecret(r.Context(), o, name)
}
