"""The models: policy, reference, teacher and critic, their adapters and their sharding. Imports batches."""
