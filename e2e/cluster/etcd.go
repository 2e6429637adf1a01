package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// EtcdRoot is the key prefix of the API server's objects:
// <root>[<group>/]<resource>/[<namespace>/]<name>.
const EtcdRoot = "/registry/"

// EtcdObjects returns the objects in etcd as the API server stored them, by their key without
// [EtcdRoot]. Objects of built-in kinds are JSON only if APIServerFlags contain
// --storage-media-type=application/json.
func (c *Cluster) EtcdObjects(ctx context.Context) (map[string][]byte, error) {
	end := []byte(EtcdRoot)
	end[len(end)-1]++ // the first key after all keys with the prefix
	var answer struct {
		KVs []struct{ Key, Value []byte }
	}
	if err := c.callEtcd(ctx, "range", map[string]any{"key": []byte(EtcdRoot), "range_end": end}, &answer); err != nil {
		return nil, err
	}
	objects := make(map[string][]byte, len(answer.KVs))
	for _, kv := range answer.KVs {
		objects[string(bytes.TrimPrefix(kv.Key, []byte(EtcdRoot)))] = kv.Value
	}
	return objects, nil
}

// PutEtcdObject writes an object, with its uid, status and managed fields, directly to etcd, under
// a key as [Cluster.EtcdObjects] returns it. The API server and its watches see the object
// immediately.
func (c *Cluster) PutEtcdObject(ctx context.Context, key string, value []byte) error {
	return c.callEtcd(ctx, "put", map[string]any{"key": []byte(EtcdRoot + key), "value": value}, nil)
}

// callEtcd calls etcd's JSON gateway (https://etcd.io/docs/v3.6/dev-guide/api_grpc_gateway).
func (c *Cluster) callEtcd(ctx context.Context, call string, request, answer any) (err error) {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.etcdURL()+"/v3/kv/"+call, bytes.NewReader(body))
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("etcd %s: %w", call, err)
	}
	defer func() { err = errors.Join(err, res.Body.Close()) }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd %s: %s", call, res.Status)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(res.Body).Decode(answer)
}
