"""More architectures than anybody lists: the relatives that bring operators of their own."""

from __future__ import annotations

import torch

from .zoo import (
    GROUPED,
    PICTURES,
    ROWS,
    SMALL,
    VOCAB,
    Batch,
    Entry,
    causal_text,
    classified_images,
    made,
    masked_text,
    padded_causal_text,
    text,
    translation,
)

#: for models that take their masks in two dimensions
text_of_2d_mask = text(lambda mask: mask)


def speech() -> Batch:
    return {"input_values": torch.randn(ROWS, 1600), "labels": torch.randint(1, 32, (ROWS, 3))}


def segmented_images() -> Batch:
    return {"pixel_values": torch.randn(ROWS, 3, 32, 32), "labels": torch.randint(4, (ROWS, 32, 32))}


EXTRA = (
    Entry(
        "distilbert",
        made(
            "DistilBertForMaskedLM", "DistilBertConfig", vocab_size=VOCAB, dim=32, n_layers=2, n_heads=4, hidden_dim=64
        ),
        masked_text,
    ),
    Entry("roberta", made("RobertaForMaskedLM", "RobertaConfig", **{**SMALL, "pad_token_id": 1}), masked_text),
    Entry("electra", made("ElectraForMaskedLM", "ElectraConfig", **SMALL, embedding_size=16), masked_text),
    Entry("albert", made("AlbertForMaskedLM", "AlbertConfig", **SMALL, embedding_size=16), masked_text),
    Entry(
        "deberta_v2",
        made(
            "DebertaV2ForMaskedLM",
            "DebertaV2Config",
            **SMALL,
            relative_attention=True,
            pos_att_type=["p2c", "c2p"],
            type_vocab_size=0,
        ),
        masked_text,
    ),
    Entry(
        "xlm",
        made(
            "XLMWithLMHeadModel",
            "XLMConfig",
            vocab_size=VOCAB,
            emb_dim=32,
            n_layers=2,
            n_heads=4,
            max_position_embeddings=64,
        ),
        text_of_2d_mask,
        reads=1,
        why="modeling_xlm.py:792 asserts that no text is longer than the batch",
    ),
    Entry(
        "bart",
        made(
            "BartForConditionalGeneration",
            "BartConfig",
            vocab_size=VOCAB,
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            max_position_embeddings=64,
            decoder_start_token_id=1,
        ),
        translation,
        reads=1,
        why="masking_utils.py:307 asks whether the decoder's mask, which BartDecoder makes of ones, is all true",
    ),
    Entry("qwen2", made("Qwen2ForCausalLM", "Qwen2Config", **GROUPED), padded_causal_text),
    Entry("qwen3", made("Qwen3ForCausalLM", "Qwen3Config", **GROUPED, head_dim=8), padded_causal_text),
    Entry("mistral", made("MistralForCausalLM", "MistralConfig", **GROUPED, sliding_window=6), padded_causal_text),
    Entry("gemma", made("GemmaForCausalLM", "GemmaConfig", **GROUPED, head_dim=8), padded_causal_text),
    Entry(
        "gemma2", made("Gemma2ForCausalLM", "Gemma2Config", **GROUPED, head_dim=8, sliding_window=6), padded_causal_text
    ),
    Entry("phi", made("PhiForCausalLM", "PhiConfig", **SMALL), padded_causal_text),
    Entry("phi3", made("Phi3ForCausalLM", "Phi3Config", **GROUPED), padded_causal_text),
    Entry(
        "falcon",
        made(
            "FalconForCausalLM",
            "FalconConfig",
            vocab_size=VOCAB,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
        ),
        padded_causal_text,
    ),
    Entry(
        "falcon_alibi",
        made(
            "FalconForCausalLM",
            "FalconConfig",
            vocab_size=VOCAB,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            alibi=True,
        ),
        text_of_2d_mask,
    ),
    Entry(
        "opt",
        made(
            "OPTForCausalLM",
            "OPTConfig",
            vocab_size=VOCAB,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            ffn_dim=64,
            max_position_embeddings=64,
            word_embed_proj_dim=32,
        ),
        text_of_2d_mask,
        reads=2,
        why="masking_utils.py:307 and 313 ask whether the mask hides anything; OPT counts its positions in it",
    ),
    Entry(
        "bloom",
        made("BloomForCausalLM", "BloomConfig", vocab_size=VOCAB, hidden_size=32, n_layer=2, n_head=4),
        text_of_2d_mask,
    ),
    Entry("gpt_neox", made("GPTNeoXForCausalLM", "GPTNeoXConfig", **SMALL), padded_causal_text),
    Entry(
        "gptj",
        made(
            "GPTJForCausalLM",
            "GPTJConfig",
            vocab_size=VOCAB,
            n_positions=64,
            n_embd=32,
            n_layer=2,
            n_head=4,
            rotary_dim=4,
        ),
        padded_causal_text,
    ),
    Entry(
        "mixtral",
        made("MixtralForCausalLM", "MixtralConfig", **GROUPED, num_local_experts=4, num_experts_per_tok=2),
        padded_causal_text,
    ),
    Entry(
        "mamba2",
        made(
            "Mamba2ForCausalLM",
            "Mamba2Config",
            vocab_size=VOCAB,
            hidden_size=32,
            state_size=8,
            num_hidden_layers=2,
            num_heads=8,
            head_dim=8,
            n_groups=2,
            chunk_size=4,
        ),
        causal_text,
    ),
    Entry(
        "rwkv",
        made("RwkvForCausalLM", "RwkvConfig", vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, context_length=32),
        causal_text,
    ),
    Entry("deit", made("DeiTForImageClassification", "DeiTConfig", **PICTURES), classified_images()),
    Entry(
        "swin",
        made(
            "SwinForImageClassification",
            "SwinConfig",
            image_size=32,
            patch_size=4,
            embed_dim=16,
            depths=[2, 2],
            num_heads=[2, 4],
            window_size=4,
            num_labels=4,
        ),
        classified_images(),
    ),
    Entry(
        "convnext",
        made(
            "ConvNextForImageClassification",
            "ConvNextConfig",
            hidden_sizes=[16, 32],
            depths=[1, 1],
            num_stages=2,
            num_labels=4,
        ),
        classified_images(),
    ),
    Entry(
        "segformer",
        made(
            "SegformerForSemanticSegmentation",
            "SegformerConfig",
            num_encoder_blocks=2,
            depths=[1, 1],
            sr_ratios=[2, 1],
            hidden_sizes=[16, 32],
            patch_sizes=[7, 3],
            strides=[4, 2],
            num_attention_heads=[1, 2],
            mlp_ratios=[2, 2],
            decoder_hidden_size=16,
            num_labels=4,
        ),
        segmented_images,
    ),
    Entry(
        "dinov2",
        made(
            "Dinov2ForImageClassification",
            "Dinov2Config",
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            image_size=32,
            patch_size=8,
            num_labels=4,
        ),
        classified_images(),
    ),
    Entry(
        "efficientnet",
        made(
            "EfficientNetForImageClassification",
            "EfficientNetConfig",
            image_size=32,
            width_coefficient=0.25,
            depth_coefficient=0.25,
            hidden_dim=320,
            num_labels=4,
        ),
        classified_images(),
    ),
    Entry(
        "wav2vec2",
        made(
            "Wav2Vec2ForCTC",
            "Wav2Vec2Config",
            vocab_size=32,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            conv_dim=[16, 16],
            conv_kernel=[10, 3],
            conv_stride=[5, 2],
            num_feat_extract_layers=2,
            apply_spec_augment=False,
            num_conv_pos_embeddings=8,
            num_conv_pos_embedding_groups=2,
            ctc_loss_reduction="mean",
        ),
        speech,
        # the model's own CTC is in float32: its second loss is 32.3563 on xla and in float64, 32.3506 on the CPU
        tolerance=1e-3,
        reads=2,
        why="modeling_wav2vec2.py:1610 looks for labels that are too large, masked_select counts the others",
    ),
)
