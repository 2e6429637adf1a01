// Package dynamodb deletes one partition of a DynamoDB table: all items whose partition key has one
// value.
package dynamodb

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"golang.org/x/sync/errgroup"
)

// batchSize is the largest number of items that BatchWriteItem takes.
const batchSize = 25

// maxRefusals is how often in a row DynamoDB may process no item of a batch.
const maxRefusals = 10

// API has the requests that a Deleter sends; *dynamodb.Client implements it.
type API interface {
	dynamodb.DescribeTableAPIClient
	dynamodb.QueryAPIClient
	BatchWriteItem(context.Context, *dynamodb.BatchWriteItemInput,
		...func(*dynamodb.Options)) (*dynamodb.BatchWriteItemOutput, error)
}

// Deleter deletes partitions.
type Deleter struct {
	API API
	// Concurrency is the largest number of batches that are deleted at the same time.
	Concurrency int
	// Backoff is the delay before unprocessed items of a batch are sent again.
	Backoff retry.BackoffDelayer
}

// Partition is one partition of a table.
type Partition struct {
	Table string
	// Value of the partition key. That of a binary key is in base64.
	Value string
}

// Delete deletes all items of a partition. It returns the number of items that it deleted, also
// with an error. IsTerminal reports whether another attempt would fail in the same way.
func (d *Deleter) Delete(ctx context.Context, p Partition) (deleted int64, err error) {
	query, err := d.query(ctx, p)
	if err != nil {
		return 0, err
	}
	var count atomic.Int64
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(d.Concurrency)
	pages, readErr := dynamodb.NewQueryPaginator(d.API, query), error(nil)
	for pages.HasMorePages() {
		var page *dynamodb.QueryOutput
		if page, readErr = pages.NextPage(groupCtx); readErr != nil {
			break
		}
		for keys := range slices.Chunk(page.Items, batchSize) {
			group.Go(func() error { return d.deleteBatch(groupCtx, p.Table, keys, &count) })
		}
	}
	// The error of a batch cancels the next read.
	if err := group.Wait(); err != nil {
		return count.Load(), requestError("deleting items", p.Table, err)
	}
	if readErr != nil {
		return count.Load(), requestError("reading the keys", p.Table, readErr)
	}
	return count.Load(), nil
}

// query returns the query for the keys of all items of a partition.
func (d *Deleter) query(ctx context.Context, p Partition) (*dynamodb.QueryInput, error) {
	out, err := d.API.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &p.Table})
	if err != nil {
		return nil, requestError("reading the key schema", p.Table, err)
	}
	names, keys := map[string]string{}, "#partition"
	for _, element := range out.Table.KeySchema {
		switch element.KeyType {
		case types.KeyTypeHash:
			names["#partition"] = aws.ToString(element.AttributeName)
		case types.KeyTypeRange:
			names["#sort"] = aws.ToString(element.AttributeName)
			keys = "#partition, #sort"
		}
	}
	value, err := keyValue(out.Table, names["#partition"], p.Value)
	if err != nil {
		return nil, &terminalError{fmt.Errorf("table %s: %w", p.Table, err)}
	}
	return &dynamodb.QueryInput{TableName: &p.Table, ConsistentRead: aws.Bool(true),
		KeyConditionExpression: aws.String("#partition = :value"), ProjectionExpression: &keys,
		ExpressionAttributeNames:  names,
		ExpressionAttributeValues: map[string]types.AttributeValue{":value": value}}, nil
}

// keyValue returns a value of the partition key with the type that the table declares.
func keyValue(table *types.TableDescription, key, value string) (types.AttributeValue, error) {
	for _, a := range table.AttributeDefinitions {
		if aws.ToString(a.AttributeName) != key {
			continue
		}
		switch a.AttributeType {
		case types.ScalarAttributeTypeS:
			return &types.AttributeValueMemberS{Value: value}, nil
		case types.ScalarAttributeTypeN:
			return &types.AttributeValueMemberN{Value: value}, nil
		case types.ScalarAttributeTypeB:
			raw, err := base64.StdEncoding.DecodeString(value)
			if err != nil {
				return nil, fmt.Errorf("the partition key %s is binary: its value must be base64", key)
			}
			return &types.AttributeValueMemberB{Value: raw}, nil
		}
	}
	return nil, fmt.Errorf("the type of the partition key %q is unknown", key)
}

// deleteBatch deletes items by their keys, until all of them are deleted.
func (d *Deleter) deleteBatch(ctx context.Context, table string, keys []map[string]types.AttributeValue,
	deleted *atomic.Int64) error {
	requests := make([]types.WriteRequest, len(keys))
	for i, key := range keys {
		requests[i].DeleteRequest = &types.DeleteRequest{Key: key}
	}
	for refusals := 0; ; refusals++ {
		out, err := d.API.BatchWriteItem(ctx,
			&dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{table: requests}})
		if err != nil {
			return err
		}
		var left []types.WriteRequest
		for _, unprocessed := range out.UnprocessedItems {
			left = append(left, unprocessed...)
		}
		deleted.Add(int64(len(requests) - len(left)))
		if len(left) == 0 {
			return nil
		}
		if len(left) < len(requests) {
			refusals = 0
		}
		if refusals == maxRefusals {
			return fmt.Errorf("no item of a batch was processed in %d requests: the table's write capacity is used up",
				maxRefusals)
		}
		requests = left
		if err := d.wait(ctx, refusals); err != nil {
			return err
		}
	}
}

func (d *Deleter) wait(ctx context.Context, attempt int) error {
	delay, err := d.Backoff.BackoffDelay(attempt, nil)
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(delay):
		return nil
	}
}
