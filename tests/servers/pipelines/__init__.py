"""Jobs for the tests of this folder."""
