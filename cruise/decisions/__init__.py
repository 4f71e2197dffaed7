"""Pure decisions: plain frozen data in, data with its reason out."""
