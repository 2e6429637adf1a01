package dynamodb_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/ksctl/gitops/internal/dynamodb"
)

// table is a table with one partition, and the API for it.
type table struct {
	schema   []types.KeySchemaElement
	keyTypes []types.AttributeDefinition
	pageSize int
	// unprocessed returns how many items of a batch are not processed by the nth request.
	unprocessed                          func(n, items int) int
	describeErr, queryErr, batchWriteErr error

	mu                      sync.Mutex
	items                   int
	queries, batches        int
	running, mostConcurrent int
	query                   *sdk.QueryInput
	largestBatch            int
}

func (f *table) DescribeTable(context.Context, *sdk.DescribeTableInput,
	...func(*sdk.Options)) (*sdk.DescribeTableOutput, error) {
	return &sdk.DescribeTableOutput{Table: &types.TableDescription{KeySchema: f.schema,
		AttributeDefinitions: f.keyTypes}}, f.describeErr
}

// Query returns the keys of the next page; the start key has the number of the first item.
func (f *table) Query(_ context.Context, in *sdk.QueryInput, _ ...func(*sdk.Options)) (*sdk.QueryOutput, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queries++
	if f.queries == 1 {
		f.query = in
	}
	if f.queryErr != nil && f.queries > 1 {
		return nil, f.queryErr
	}
	first := (f.queries - 1) * f.pageSize
	out := &sdk.QueryOutput{}
	for i := first; i < min(first+f.pageSize, f.items); i++ {
		out.Items = append(out.Items, map[string]types.AttributeValue{
			"id": &types.AttributeValueMemberN{Value: fmt.Sprint(i)}})
	}
	if first+f.pageSize < f.items {
		out.LastEvaluatedKey = map[string]types.AttributeValue{"id": &types.AttributeValueMemberN{Value: "x"}}
	}
	return out, nil
}

func (f *table) BatchWriteItem(_ context.Context, in *sdk.BatchWriteItemInput,
	_ ...func(*sdk.Options)) (*sdk.BatchWriteItemOutput, error) {
	f.mu.Lock()
	f.batches++
	n := f.batches
	f.running++
	f.mostConcurrent = max(f.mostConcurrent, f.running)
	requests := in.RequestItems["orders"]
	f.largestBatch = max(f.largestBatch, len(requests))
	f.mu.Unlock()
	time.Sleep(time.Millisecond)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running--
	if f.batchWriteErr != nil {
		return nil, f.batchWriteErr
	}
	out := &sdk.BatchWriteItemOutput{}
	if f.unprocessed != nil {
		if left := f.unprocessed(n, len(requests)); left > 0 {
			out.UnprocessedItems = map[string][]types.WriteRequest{"orders": requests[:left]}
		}
	}
	return out, nil
}

func newTable(keyType types.ScalarAttributeType, items int) *table {
	return &table{items: items, pageSize: 60,
		schema: []types.KeySchemaElement{{AttributeName: aws.String("customer"), KeyType: types.KeyTypeHash},
			{AttributeName: aws.String("id"), KeyType: types.KeyTypeRange}},
		keyTypes: []types.AttributeDefinition{
			{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeN},
			{AttributeName: aws.String("customer"), AttributeType: keyType}}}
}

func deletePartition(t *testing.T, f *table, value string) (int64, error) {
	t.Helper()
	d := &dynamodb.Deleter{API: f, Concurrency: 3,
		Backoff: retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return time.Millisecond, nil })}
	return d.Delete(t.Context(), dynamodb.Partition{Table: "orders", Value: value})
}

func TestDeleteReadsOnlyKeysAndBoundsBatches(t *testing.T) {
	f := newTable(types.ScalarAttributeTypeS, 1001)
	deleted, err := deletePartition(t, f, "c1")
	if err != nil || deleted != 1001 {
		t.Fatalf("deleted %d, %v", deleted, err)
	}
	if f.queries != 17 || f.largestBatch != 25 || f.mostConcurrent < 2 || f.mostConcurrent > 3 {
		t.Errorf("%d queries, batches of up to %d, %d at the same time", f.queries, f.largestBatch, f.mostConcurrent)
	}
	if got := aws.ToString(f.query.ProjectionExpression); got != "#partition, #sort" ||
		f.query.ExpressionAttributeNames["#partition"] != "customer" ||
		f.query.ExpressionAttributeNames["#sort"] != "id" || !aws.ToBool(f.query.ConsistentRead) {
		t.Errorf("query %+v", f.query)
	}
}

func TestDeleteUsesTypeOfPartitionKey(t *testing.T) {
	for keyType, want := range map[types.ScalarAttributeType]types.AttributeValue{
		types.ScalarAttributeTypeS: &types.AttributeValueMemberS{Value: "MTI="},
		types.ScalarAttributeTypeN: &types.AttributeValueMemberN{Value: "MTI="},
		types.ScalarAttributeTypeB: &types.AttributeValueMemberB{Value: []byte("12")},
	} {
		f := newTable(keyType, 1)
		f.schema = f.schema[:1] // without a sort key
		if _, err := deletePartition(t, f, "MTI="); err != nil {
			t.Errorf("%s: %v", keyType, err)
			continue
		}
		got := f.query.ExpressionAttributeValues[":value"]
		if fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) ||
			aws.ToString(f.query.ProjectionExpression) != "#partition" {
			t.Errorf("%s: got %#v of %s", keyType, got, aws.ToString(f.query.ProjectionExpression))
		}
	}
}

func TestDeleteRepeatsUnprocessedItems(t *testing.T) {
	f := newTable(types.ScalarAttributeTypeS, 200)
	// Of each second request, a part is processed; sometimes nothing is.
	f.unprocessed = func(n, items int) int { return []int{0, items / 2, items}[n%3] }
	deleted, err := deletePartition(t, f, "c1")
	if err != nil || deleted != 200 {
		t.Errorf("deleted %d, %v", deleted, err)
	}
	if f.batches <= 8 {
		t.Errorf("%d requests repeat nothing", f.batches)
	}
}

func TestDeleteEndsWhenNothingIsProcessed(t *testing.T) {
	f := newTable(types.ScalarAttributeTypeS, 10)
	f.unprocessed = func(_, items int) int { return items }
	deleted, err := deletePartition(t, f, "c1")
	if deleted != 0 || err == nil || !strings.Contains(err.Error(), "write capacity is used up") ||
		dynamodb.IsTerminal(err) {
		t.Errorf("deleted %d, %v", deleted, err)
	}
	if f.batches != 11 {
		t.Errorf("%d requests", f.batches)
	}
}

func TestDeleteErrors(t *testing.T) {
	apiError := func(code, message string) error {
		return fmt.Errorf("operation error: %w", &smithy.GenericAPIError{Code: code, Message: message})
	}
	for name, tc := range map[string]struct {
		change   func(*table)
		value    string
		want     string
		terminal bool
		deleted  bool
	}{
		"no such table": {change: func(f *table) { f.describeErr = &types.ResourceNotFoundException{} },
			want:     "table orders does not exist: check the name of the table, the region and the endpoint",
			terminal: true},
		"no permission": {change: func(f *table) {
			f.describeErr = apiError("AccessDeniedException", "not authorized")
		}, want: "table orders: reading the key schema: AccessDeniedException: not authorized", terminal: true},
		"a key that is no base64": {change: func(f *table) { f.keyTypes[1].AttributeType = types.ScalarAttributeTypeB },
			value: "%", want: "table orders: the partition key customer is binary: its value must be base64",
			terminal: true},
		"a key of another type": {change: func(f *table) {
			f.pageSize = 1
			f.queryErr = apiError("ValidationException", "not a number")
		}, want: "table orders: reading the keys: ValidationException: not a number", terminal: true, deleted: true},
		"throttled": {change: func(f *table) {
			f.batchWriteErr = apiError("ProvisionedThroughputExceededException", "slow down")
		}, want: "table orders: deleting items: ProvisionedThroughputExceededException: slow down"},
		"no connection": {change: func(f *table) { f.describeErr = errors.New("connection refused") },
			want: "table orders: reading the key schema: connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newTable(types.ScalarAttributeTypeS, 100)
			tc.change(f)
			deleted, err := deletePartition(t, f, tc.value)
			if err == nil || err.Error() != tc.want || dynamodb.IsTerminal(err) != tc.terminal {
				t.Errorf("terminal %v: %v", dynamodb.IsTerminal(err), err)
			}
			if (deleted > 0) != tc.deleted {
				t.Errorf("deleted %d", deleted)
			}
		})
	}
}

func TestDeleteStopsWithItsContext(t *testing.T) {
	f := newTable(types.ScalarAttributeTypeS, 10_000)
	ctx, cancel := context.WithCancel(t.Context())
	f.unprocessed = func(n, _ int) int {
		if n == 20 {
			cancel()
		}
		return 0
	}
	d := &dynamodb.Deleter{API: contextAPI{f}, Concurrency: 2, Backoff: retry.NewExponentialJitterBackoff(time.Second)}
	deleted, err := d.Delete(ctx, dynamodb.Partition{Table: "orders", Value: "c1"})
	if !errors.Is(err, context.Canceled) || dynamodb.IsTerminal(err) || deleted == 0 || deleted > 1000 {
		t.Errorf("deleted %d, %v", deleted, err)
	}
}

// contextAPI answers no request with a canceled context, as an HTTP client.
type contextAPI struct{ *table }

func (a contextAPI) Query(ctx context.Context, in *sdk.QueryInput,
	o ...func(*sdk.Options)) (*sdk.QueryOutput, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return a.table.Query(ctx, in, o...)
}

func (a contextAPI) BatchWriteItem(ctx context.Context, in *sdk.BatchWriteItemInput,
	o ...func(*sdk.Options)) (*sdk.BatchWriteItemOutput, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return a.table.BatchWriteItem(ctx, in, o...)
}
