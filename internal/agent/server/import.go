package server

import (
	"context"
	"errors"
	"maps"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/ksctl/gitops/internal/statestore"
	"github.com/ksctl/gitops/stacks/state"
)

// importStates brings an export into ksctl's store: its own keys, whatever they held before, and
// no other. The errors are those of gRPC, and quote nothing of the export.
func (s *Server) importStates(ctx context.Context, data []byte) error {
	states, credentials, err := readExport(data)
	if err != nil {
		return err
	}
	store, err := statestore.Read(ctx, s.opts.States, s.opts.StatesNamespace, len(credentials) > 0)
	if err != nil {
		return onStore(err)
	}
	if store.External {
		return status.Error(codes.FailedPrecondition, "ksctl keeps its states in a MongoDB here: import it there")
	}
	const tries = 5
	for try := 1; ; try++ {
		have := maps.Clone(store.States)
		if have == nil {
			have = map[string][]byte{}
		}
		maps.Copy(have, states)
		if err := state.CheckSize(have); err != nil {
			return status.Error(codes.ResourceExhausted, err.Error())
		}
		err := store.Write(ctx, differing(states, store.States), differing(credentials, store.Credentials))
		if err == nil {
			s.opts.Log.Info("an export was imported", "namespace", s.opts.StatesNamespace, "states", len(states), "credentials", len(credentials))
			return nil
		}
		if try == tries {
			return onStore(err)
		}
		if err := store.Reread(ctx, err); err != nil {
			return onStore(err)
		}
	}
}

// readExport reads what is to be imported, by the keys of the store.
func readExport(data []byte) (states, credentials map[string][]byte, err error) {
	f, err := state.Parse("data", data)
	if err != nil {
		return nil, nil, status.Errorf(codes.InvalidArgument, "%v", err)
	}
	if f.Form != state.ExportForm {
		return nil, nil, status.Error(codes.InvalidArgument, "data is no export of ksctl: it has neither Clusters nor Credentials")
	}
	states, credentials = map[string][]byte{}, map[string][]byte{}
	for _, c := range f.Clusters {
		if wrong := c.Check(); len(wrong) > 0 {
			return nil, nil, status.Errorf(codes.InvalidArgument, "a cluster can't be imported: %v", wrong[0])
		}
		if c.External {
			return nil, nil, status.Errorf(codes.FailedPrecondition, "cluster %s was exported from a MongoDB, where its state is still kept", c.ID)
		}
		states[c.ID.Key()] = c.JSON()
	}
	for _, c := range f.Credentials {
		credentials[c.Cloud] = c.JSON()
	}
	return states, credentials, nil
}

// differing are the values that the store has not.
func differing(want, have map[string][]byte) map[string][]byte {
	out := maps.Clone(want)
	maps.DeleteFunc(out, func(key string, v []byte) bool { return have[key] != nil && state.Equal(v, have[key]) })
	return out
}

// onStore is an error of the store on the wire.
func onStore(err error) error {
	code := codes.Unavailable
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		code = codes.FailedPrecondition
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		code = codes.Aborted
	case apierrors.IsRequestEntityTooLargeError(err):
		code = codes.ResourceExhausted
	}
	return status.Error(code, err.Error())
}
